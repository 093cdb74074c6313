"""Time generated kernels beside their peers: one process, one set of inputs, interleaved rounds."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from attngen import bench_decode, bench_merge, bench_prefill, bench_softmax

CELLS = {
    "attention_fwd": bench_prefill.cells,
    "attention_decode": bench_decode.cells,
    "merge_state": bench_merge.cells,
    "softmax": bench_softmax.cells,
    "softmax_topk": bench_softmax.topk_cells,
}
"""By operator: what makes its cells, for dtypes and a family of templates."""


def records(op: str, dtypes: Iterable[str], backend: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Records of the results format for every cell of an operator.

    A spec for which nothing is built is left out.
    """
    for cell in CELLS[op](dtypes, backend):
        if cell.kernels:
            yield cell.record(rounds)
        del cell
        gc.collect()
        torch.cuda.empty_cache()


def line(record: dict[str, Any]) -> str:
    """One record as a line of a table."""
    digits = 0 if record["metric"] == "tflops" else 2
    shape = ", ".join(str(x) for x in record["shape"].values())
    peers = "  ".join(f"{name} {value:.{digits}f}" for name, value in record["peers"].items())
    bounds = "".join(
        f"  {value:.2f} of {name}" for name, value in record.get("of_bounds", {}).items()
    )
    return (
        f"({shape}) {'causal' if record['causal'] else 'full  '} {record['dtype']}"
        f"  {record['value']:.{digits}f}  {peers}  {record['ratio']:.2f} of {record['best_peer']}"
        f"{bounds}  {record['variant']}"
    )


def as_text(head: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """Header and records as the results files have them, one record a line."""
    rows = ",\n  ".join(json.dumps(record) for record in records)
    top = json.dumps(head, indent=1)[:-2]
    return f'{top},\n "records": [\n  {rows}\n ]\n}}\n'


def save(path: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write header and records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(head, records), encoding="utf-8")
