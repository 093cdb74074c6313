"""docs/planted-faults.md: which check finds which planted fault; as a script: rewrite it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from probes import EXTRA_CASES, PROBES
from roster import BY_PART, COMPILED_PROBE, MUTANTS
from target_mutants import HARMLESS, ONLY_ON_GPU

PAGE = Path(__file__).parents[2] / "docs" / "planted-faults.md"

CHECKS = {
    "hard o": "an element of o (of a row softmax: y) is further from the reference than its error"
    " budget",
    "hard lse": "the same of lse",
    "NaN o": "an infinity or NaN in o where the reference has none, or the other way round",
    "NaN lse": "the same of lse",
    "sharp row": "within the budget, but a row is further off than twice plain attention's error",
    "sharp head": "within the budget, but a head's root mean square error is over 1.25 times"
    " plain attention's",
    "bits": "a state that is alone among empty ones does not come out bit for bit",
    "values": "an entry that top-k gives is not the reference's",
    "indices": "a column that top-k gives is not the reference's",
    "rows around out": "something was written beside the rows and columns of out",
    "given out": "the tensor that was given as out does not hold the result",
    "refusal": "a wrong call is not refused, or not by the name of its argument",
    "grid": "an axis of the launch is longer than a GPU takes",
    "host sync": "the launcher waits for a value of a tensor",
    "does not run": "Triton refuses the kernel, in the interpreter too",
    "compile": "the compiler for sm_80 refuses the kernel",
    "tf32": "compiled for sm_80, float32 products are made of tf32",
    "out of bounds": "an address that is read or written lies in none of the tensors",
    "wrong address": "the same, or wrong numbers, whichever a wrapped offset leads to",
}


def page() -> str:
    """The page's text."""
    counts = Counter(check for mutant in MUTANTS.values() for check in mutant.killed_by)
    lines = [
        "# Planted faults",
        "",
        f"`tests/mutants/` plants {len(MUTANTS)} faults that people really ship in rendered kernels"
        " and launchers, one at a time,",
        "and holds each to one small input. Every one is found without a GPU, by exactly the checks"
        " named here, and",
        "the kernels without a fault pass the same inputs. `python"
        " tests/mutants/planted_faults_table.py` rewrites this page from",
        "the mutants; tests hold it and them to what is measured.",
        "",
        "| check | finds | what it says |",
        "| --- | --- | --- |",
        *(f"| {check} | {counts[check]} | {words} |" for check, words in CHECKS.items()),
        "",
        "An input in quotation marks is a case of `attngen verify`; the others are inputs of"
        " `tests/mutants/probes.py` and its",
        "neighbours. Where o is beyond its budget, the sharp checks are not asked. Kernels are"
        " named without `attention_fwd_`",
        "and their tile, which is 16 queries by 16 keys, or 8 rows of a merge; those of row softmax"
        " by their whole names.",
        "Cases of `attngen verify` have the same names for other operators and are other inputs.",
    ]
    for part, mutants in BY_PART.items():
        lines += ["", f"## {part}", "", "| fault | kernel | input | found by |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            f"| {mutant.name} | {_short(mutant.kernel)} | {_input(mutant.probe)} |"
            f" {', '.join(sorted(mutant.killed_by))} |"
            for mutant in mutants
        ]
    lines += ["", "## What a CPU cannot show", ""]
    lines += ["The tests hold these edits to apply, and the checks to pass.", ""]
    lines += ["| fault | why |", "| --- | --- |"]
    lines += [f"| {mutant.name} | {why} |" for mutant, why in ONLY_ON_GPU.items()]
    lines += ["", "## What is no fault here", ""]
    lines += ["In other kernels it is; the tests hold the checks to pass.", ""]
    lines += ["| change | why |", "| --- | --- |"]
    lines += [f"| {mutant.name} | {why} |" for mutant, why in HARMLESS.items()]
    return "\n".join(lines) + "\n"


def _short(kernel: str) -> str:
    return (
        kernel.removeprefix("attention_fwd_")
        .removesuffix("_m16_n16_w1_s1")
        .removesuffix("_m8_w1_s1")
    )


def _input(probe: str) -> str:
    ours = probe in PROBES or probe in EXTRA_CASES or probe == COMPILED_PROBE
    return probe if ours else f'"{probe}"'


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
