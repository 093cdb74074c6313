"""Write the tables of measured numbers into the pages that quote them: python docs/tables.py.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; its rows come from the committed
results under docs/performance, so that a page cannot say what was not measured.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import memory_tables
from memory_tables import RESULTS, records

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = RESULTS / "experiments"
NAMES = (
    "README",
    "docs/compile-matrix",
    "docs/error-budget",
    "docs/performance/README",
    "docs/performance/log",
)
PAGES = [ROOT / f"{name}.md" for name in NAMES]


def prefill() -> str:
    """Prefill of the portable family beside the peers that torch brings."""
    lines = [
        "| batch, seqlen, heads, KV heads, head dim | causal | attngen | FA2 | FlexAttention"
        " | cuDNN | / FA2 | / Flex | / cuDNN |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records(RESULTS / "prefill.json"):
        peers, value = record["peers"], record["value"]
        order = [peers[name] for name in ("fa2", "flex", "cudnn")]
        lines.append(
            f"| {', '.join(str(x) for x in record['shape'].values())}"
            f" | {'yes' if record['causal'] else 'no'} | {value:.0f}"
            + "".join(f" | {peer:.0f}" for peer in order)
            + "".join(f" | {value / peer:.2f}" for peer in order)
            + " |"
        )
    return "\n".join(lines)


def compiled(version: str) -> str:
    """Registers and shared memory of every committed kernel on every target."""
    reports: dict[str, dict[str, str]] = {}
    for record in records(ROOT / f"docs/compile/triton-{version}.json"):
        cell = f"{record['registers']}, {record['shared'] / 1024:.0f} KB"
        if record["spills"]:
            cell += f", spills {record['spills']} bytes"
        reports.setdefault(record["variant"], {})[record["target"]] = cell
    targets = list(dict.fromkeys(target for cells in reports.values() for target in cells))
    lines = [f"| kernel | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|"]
    for variant, cells in sorted(reports.items()):
        lines.append(f"| {variant} | {' | '.join(cells.get(target, '-') for target in targets)} |")
    return "\n".join(lines)


def hopper() -> str:
    """Prefill of the Hopper family beside cuDNN, rested and sustained."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for record in records(RESULTS / "prefill-sm90.json"):
        key = (*record["shape"].values(), record["causal"])
        found.setdefault(key, {})[record["clock"]] = record
    lines = [
        "| batch, seqlen, heads, KV heads, head dim | causal | rested | cuDNN | / cuDNN"
        " | sustained | cuDNN | / cuDNN |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (*shape, causal), cell in found.items():
        columns = [
            f"{r['value']:.0f} | {r['peers']['cudnn']:.0f} | {r['ratio']:.2f}"
            for r in (cell["rested"], cell["sustained"])
        ]
        name = ", ".join(str(x) for x in shape)
        lines.append(f"| {name} | {'yes' if causal else 'no'} | {' | '.join(columns)} |")
    return "\n".join(lines)


def verified() -> str:
    """How much of the budget the committed kernels use, and how they stand to plain attention."""
    names = ("o", "lse", "row_ratio", "rms_ratio")
    worst: dict[tuple[str, str], list[float]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for record in records(RESULTS / "verify.json"):
        op, dtype = re.match(r"([a-z_]+?)_[cd]\d.*?_((?:bf|fp)\d\d)", record["variant"]).groups()  # type: ignore[union-attr]
        counts[op, dtype] += 1
        values = [record[name] or 0.0 for name in names]
        known = worst.get((op, dtype), [0.0] * 4)
        worst[op, dtype] = [max(a, b) for a, b in zip(known, values, strict=True)]
    lines = [
        "| operator | dtype | kernels | budget of o used | of lse | error a row / allowed"
        " | RMS a head / allowed |",
        "|---" * 7 + "|",
    ]
    for (op, dtype), values in sorted(worst.items()):
        numbers = " | ".join(f"{x:.2f}" if x else "none" for x in values)
        lines.append(f"| {op} | {dtype} | {counts[op, dtype]} | {numbers} |")
    return "\n".join(lines)


def cells() -> str:
    """The shapes of the experiments."""
    lines = ["| cells | batch, seqlen, heads, KV heads, head dim |", "|---|---|"]
    shapes: dict[tuple[int, ...], list[str]] = {}
    for cell, facts in json.loads((EXPERIMENTS / "hopper-forward.json").read_text())[
        "cells"
    ].items():
        shapes.setdefault(tuple(facts.values())[:5], []).append(cell)
    lines += [f"| {', '.join(c)} | {', '.join(map(str, s))} |" for s, c in shapes.items()]
    return "\n".join(lines)


def experiment(run: int) -> str:
    """Speeds of one round of experiments over the prototype's (cuDNN's where it has none)."""
    found: dict[str, dict[str, str]] = {}
    for record in records(EXPERIMENTS / "hopper-forward.json"):
        if record["run"] == run:
            ratio = record.get("over_prototype") or record.get("over_cudnn")
            numbers = record["tflops"] if record["candidate"] == "prototype" else ratio
            if numbers:
                cell = found.setdefault(record["cell"], {})
                cell[record["candidate"]] = "/".join(map(str, numbers))
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    lines = [f"| cell | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for cell, row in found.items():
        lines.append(f"| {cell} | {' | '.join(row.get(name, '') for name in names)} |")
    return "\n".join(lines)


def host() -> str:
    """Host time of a call of the Hopper launcher."""
    lines = ["| call | microseconds |", "|---|---|"]
    for record in records(EXPERIMENTS / "hopper-host.json"):
        if record.get("metric") == "us":
            lines.append(f"| {record['what']} | {record['value']:.1f} |")
    return "\n".join(lines)


def portable() -> str:
    """What changes of the portable template were worth."""
    lines = ["| kernel | change | before | after |", "|---|---|---|---|"]
    for r in records(EXPERIMENTS / "portable-forward.json"):
        if "before" in r:
            lines.append(f"| {r['what']} | {r['change']} | {r['before']} | {r['after']} TFLOP/s |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "prefill": prefill,
    "hopper": hopper,
    "verified": verified,
    "compiled_oldest": partial(compiled, "3.6.0"),
    "compiled_newest": partial(compiled, "3.9.0"),
    "cells": cells,
    "host": host,
    "portable": portable,
    "decode": memory_tables.decode,
    "merge": memory_tables.merge,
    "softmax": memory_tables.softmax,
    "topk": memory_tables.topk,
    "cascade": memory_tables.cascade,
    "naive": memory_tables.naive,
    **{f"run_{run}": partial(experiment, run) for run in range(1, 6)},
}


def with_tables(text: str) -> str:
    """A page with every table in it written anew."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
