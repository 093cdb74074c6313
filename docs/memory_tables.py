"""The tables of what is bound by memory: decode, merges, row softmax, cascades, naive attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "performance/nvidia-h200"


def decode() -> str:
    """Decode beside the best peer, dense and in pages; TB/s of k, v, q and o."""
    found: dict[tuple[int, ...], dict[int, dict[str, Any]]] = {}
    for record in _records("decode"):
        sizes = dict(record["shape"])
        page_size = sizes.pop("page_size", 0)
        found.setdefault(tuple(sizes.values()), {})[page_size] = record
    lines = [
        "| batch, keys, heads, KV heads, head dim | attngen | cuDNN | FA2 | / cuDNN | / sum"
        " | pages of 16 / dense | of 64 / dense |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape, by_page in found.items():
        dense = by_page[0]
        peers, value = dense["peers"], dense["value"]
        lines.append(
            f"| {', '.join(map(str, shape))} | {value:.2f} | {peers['cudnn']:.2f}"
            f" | {peers['fa2']:.2f} | {dense['ratio']:.2f}"
            f" | {dense['of_bounds']['sum of k and v']:.2f}"
            f" | {by_page[16]['value'] / value:.2f} | {by_page[64]['value'] / value:.2f} |"
        )
    return "\n".join(lines)


def merge() -> str:
    """Two states merged, beside torch's compiler and a copy of the same bytes; TB/s."""
    lines = ["| tokens | attngen | torch.compile | / torch.compile | / copy |", "|---" * 5 + "|"]
    for record in _records("merge"):
        peer = record["peers"]["torch.compile"]
        lines.append(
            f"| {record['shape']['tokens']} | {record['value']:.2f} | {peer:.2f}"
            f" | {record['ratio']:.2f} | {record['of_bounds']['copy']:.2f} |"
        )
    return "\n".join(lines)


def softmax() -> str:
    """Row softmax beside torch's and a copy; TB/s of one read and one write."""
    found: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
    for record in _records("softmax"):
        rows, columns = record["shape"].values()
        megabytes = rows * columns * (2 if record["dtype"] == "bf16" else 4) >> 20
        if megabytes in (16, 256) and (rows, columns) != (8, 2**20):
            found.setdefault((megabytes, columns), {})[record["dtype"]] = record
    lines = [
        "| MB | columns | bf16 | algorithm | / torch | / copy | fp32 | algorithm | / torch"
        " | / copy |",
        "|---" * 10 + "|",
    ]
    for (megabytes, columns), by_dtype in found.items():
        cells = [
            f"{r['value']:.2f} | {_algorithm(r['variant'])} | {r['ratio']:.2f}"
            f" | {r['of_bounds']['copy']:.2f}"
            for r in (by_dtype["bf16"], by_dtype["fp32"])
        ]
        lines.append(f"| {megabytes} | {columns} | {' | '.join(cells)} |")
    return "\n".join(lines)


def topk() -> str:
    """Softmax with top-k beside torch's two calls; TB/s of one read."""
    lines = ["| rows, columns, k | dtype | attngen | torch | / torch |", "|---" * 5 + "|"]
    for r in _records("softmax-topk"):
        lines.append(
            f"| {r['shape']['rows']}, {r['shape']['columns']}, 5 | {r['dtype']}"
            f" | {r['value']:.2f} | {r['peers']['torch']:.2f} | {r['ratio']:.1f} |"
        )
    return "\n".join(lines)


def cascade() -> str:
    """A shared prefix attended to once, beside each request by itself; microseconds."""
    lines = [
        "| requests | prefix | cascade | of it prefix | of it suffixes | each by itself | faster |",
        "|---" * 7 + "|",
    ]
    for r in _records("cascade"):
        alone = r["peers"]["each request by itself"]
        lines.append(
            f"| {r['requests']} | {r['prefix']} | {r['value']:.0f} | {r['parts']['prefix']:.0f}"
            f" | {r['parts']['suffix']:.0f} | {alone:.0f} | {r['ratio']:.2f} |"
        )
    return "\n".join(lines)


def naive() -> str:
    """Attention in three kernels beside one, and both beside their floors; microseconds."""
    lines = [
        "| length | three kernels | floor | one kernel | floor | faster | bytes gone |",
        "|---" * 7 + "|",
    ]
    for r in _records("roofline"):
        gone = 1 - r["bytes"] / r["naive_bytes"]
        lines.append(
            f"| {r['shape']['seqlen']} | {r['peers']['naive']:.0f} | {r['naive_floor']:.0f}"
            f" | {r['value']:.0f} | {r['floor']:.0f} | {r['ratio']:.2f} | {100 * gone:.1f} % |"
        )
    return "\n".join(lines)


def _algorithm(variant: str) -> str:
    return next(name for name in ("single", "online", "safe", "split") if f"_{name}" in variant)


def records(path: Path) -> list[dict[str, Any]]:
    """The records of a file of results."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["records"]
    return found


def _records(name: str) -> list[dict[str, Any]]:
    return records(RESULTS / f"{name}.json")
