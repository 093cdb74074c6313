"""How tight the error budget is: measured on the simulated kernel, kept in docs/error-budget.md.

Run as a script it rewrites the table there; a test measures again and compares.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from simulated_kernel import Simulation, simulate

from attngen.reference import attention, error_budget, statistical_budget
from attngen.reference.checks import compare, plain_attention
from attngen.reference.rounding import round_to

PAGE = Path(__file__).parents[2] / "docs" / "error-budget.md"
HEADER = "| operands | output | BLOCK_N | bound | looseness of o | of lse | limit for o |"
SEQLEN_KV, HEAD_DIM, ROWS = 8192, 128, 64


@dataclass(frozen=True)
class Case:
    operand: str
    out: str
    block_n: int
    bound: str = "hard"
    limit: float | None = None


CASES = [
    Case(operand, out, block_n, limit=30 if out == operand else 50)
    for operand in ("fp16", "bf16")
    for out in (operand, "fp32")
    for block_n in (64, 128)
] + [
    Case("fp32", "fp32", 64),
    Case("fp32", "fp32", 64, "statistical", 30),
    Case("fp32", "fp32", 128, "statistical", 30),
]


def measure(case):
    """Looseness of o and of lse: 1 / max(|error| / bound), inputs unit normal."""
    rng = np.random.default_rng(8192)
    q, k, v = (
        round_to(rng.normal(size=(1, n, 1, HEAD_DIM)).astype(np.float32), case.operand)
        for n in (ROWS, SEQLEN_KV, SEQLEN_KV)
    )
    how = Simulation(
        case.operand,
        case.out,
        block_n=case.block_n,
        chunk=0 if case.operand == "fp32" else 16,
        chained=case.operand != "fp32",
    )
    budget = error_budget if case.bound == "hard" else statistical_budget
    bounds = budget(q, k, v, operand_dtype=case.operand, out_dtype=case.out, block_n=case.block_n)
    plain = plain_attention(q, k, v, operand_dtype=case.operand, out_dtype=case.out)
    verdict = compare(
        *simulate(q, k, v, how), *attention(q, k, v), *bounds, plain, out_dtype=case.out
    )
    assert verdict.passed, verdict.failures
    return 1 / verdict.o.ratio, 1 / verdict.lse.ratio


def row(case, o, lse):
    limit = "" if case.limit is None else f"{case.limit}"
    return (
        f"| {case.operand} | {case.out} | {case.block_n} | {case.bound} |"
        f" {o:.1f} | {lse:.0f} | {limit} |"
    )


def rows_of_page():
    """The table's rows as they stand in the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(HEADER) + 2
    return lines[first : first + len(CASES)]


def rewrite():
    """Measure, and put the rows into the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(HEADER) + 2
    rows = [row(case, *measure(case)) for case in CASES]
    rest = [line for line in lines[first:] if not line.startswith("| ")]
    PAGE.write_text("\n".join([*lines[:first], *rows, *rest]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    rewrite()
