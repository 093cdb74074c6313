"""Write the tables of measured numbers into the pages that quote them: python docs/tables.py.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; its rows come from the committed
results under docs/performance, so that a page cannot say what was not measured.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/performance/nvidia-h200"
PAGES = [ROOT / "README.md", ROOT / "docs/compile-matrix.md"]


def prefill() -> str:
    """Prefill of the portable family beside the peers that torch brings."""
    lines = [
        "| batch, seqlen, heads, KV heads, head dim | causal | attngen | FA2 | FlexAttention"
        " | cuDNN | / FA2 | / Flex | / cuDNN |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in _records(RESULTS / "prefill.json"):
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


def compiled() -> str:
    """Registers and shared memory of every committed kernel on every target."""
    reports: dict[str, dict[str, str]] = {}
    for record in _records(ROOT / "docs/compile/triton-3.6.0.json"):
        cell = f"{record['registers']}, {record['shared'] / 1024:.0f} KB"
        reports.setdefault(record["variant"], {})[record["target"]] = cell
    targets = list(next(iter(reports.values())))
    lines = [f"| kernel | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|"]
    for variant, cells in sorted(reports.items()):
        lines.append(f"| {variant} | {' | '.join(cells[target] for target in targets)} |")
    return "\n".join(lines)


def _records(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return records


TABLES = {"prefill": prefill, "compiled": compiled}


def with_tables(text: str) -> str:
    """A page with every table in it written anew."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
