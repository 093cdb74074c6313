"""Compile the catalog for every target and keep what it takes: python docs/compile_matrix.py.

Writes docs/compile/triton-VERSION.json for the Triton that is installed, and the table in
docs/compile-matrix.md. No GPU is needed; from nothing it takes some minutes. A report has a digest
of every kernel's text and of how it is called: what is as in the report is not compiled again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from attngen import compile as compiler
from attngen.catalog import catalog
from attngen.config import TARGETS
from attngen.context import context
from attngen.render import render
from attngen.variant import Variant

FOLDER = Path(__file__).resolve().parent / "compile"
CHOSEN = ("sm_80", "sm_90", "sm_100", "gfx942")
KEPT = ("variant", "target", "registers", "spills", "shared")


def path(version: str) -> Path:
    """Where the report of a Triton version is kept."""
    return FOLDER / f"triton-{version}.json"


def digest(variant: Variant) -> str:
    """Of a kernel's text and usual calls, which with Triton's version decide what it takes."""
    names = context(variant)
    told = f"{render(variant)}{names['kernel_signature']}{names['launches']}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def measure(known: dict[str, Any]) -> list[dict[str, Any]]:
    """The resources of every committed kernel on every target, as records."""
    digests = {name: digest(variant) for name, variant in catalog().items()}
    same = {name for name, value in known.get("digests", {}).items() if digests.get(name) == value}
    targets = [TARGETS[name] for name in CHOSEN]
    changed = [variant for name, variant in catalog().items() if name not in same]
    reports = compiler.reports(changed, targets, skip=True)
    records = [report.as_dict() for report in reports if isinstance(report, compiler.Resources)]
    records += [record for record in known.get("records", []) if record["variant"] in same]
    order = {name: i for i, name in enumerate(digests)}
    return sorted(records, key=lambda r: (CHOSEN.index(r["target"]), order[r["variant"]]))


def save(version: str, records: list[dict[str, Any]]) -> None:
    """Write a report, one record a line."""
    head = json.dumps(
        {
            "triton": version,
            "command": "python docs/compile_matrix.py",
            "digests": {name: digest(variant) for name, variant in catalog().items()},
        },
        indent=1,
    )
    rows = ",\n  ".join(json.dumps({key: record[key] for key in KEPT}) for record in records)
    path(version).write_text(f'{head[:-2]},\n "records": [\n  {rows}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    import triton

    report = path(triton.__version__)
    known = json.loads(report.read_text("utf-8")) if report.exists() else {}
    save(triton.__version__, measure(known))
