"""Compile the catalog for every target and keep what it takes: python docs/compile_matrix.py.

Writes docs/compile/triton-VERSION.json for the Triton that is installed, and the table in
docs/compile-matrix.md. No GPU is needed; it takes a few minutes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attngen import compile as compiler
from attngen.catalog import catalog
from attngen.config import TARGETS

FOLDER = Path(__file__).resolve().parent / "compile"
CHOSEN = ("sm_80", "sm_90", "sm_100", "gfx942")
KEPT = ("variant", "target", "registers", "spills", "shared")


def path(version: str) -> Path:
    """Where the report of a Triton version is kept."""
    return FOLDER / f"triton-{version}.json"


def measure() -> list[dict[str, Any]]:
    """The resources of every committed kernel on every target, as records."""
    targets = [TARGETS[name] for name in CHOSEN]
    reports = compiler.reports(catalog().values(), targets, skip=True)
    records = [report.as_dict() for report in reports if isinstance(report, compiler.Resources)]
    return sorted(records, key=lambda record: CHOSEN.index(record["target"]))


def save(version: str, records: list[dict[str, Any]]) -> None:
    """Write a report, one record a line."""
    head = json.dumps({"triton": version, "command": "python docs/compile_matrix.py"}, indent=1)
    rows = ",\n  ".join(json.dumps({key: record[key] for key in KEPT}) for record in records)
    path(version).write_text(f'{head[:-2]},\n "records": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    import triton

    save(triton.__version__, measure())
