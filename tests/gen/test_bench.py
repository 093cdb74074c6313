"""What `attngen bench` makes of its timings; the timings themselves need a GPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from attngen import bench, bench_cell, bench_decode, bench_merge, bench_prefill
from attngen.bench_cell import Cell
from attngen.ops import OPS
from attngen.spec_attention import AttentionDecode


def timed(calls: dict[str, Any], work: float, rounds: int) -> dict[str, list[float]]:
    """The first of the calls cannot be captured; of the others the later the faster."""
    return {name: [work * i, work * i * 2, work * i * 3] for i, name in enumerate(calls) if i}


def test_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_cell, "timed_speeds", timed)
    cell = Cell(
        AttentionDecode(head_dim=64, dtype="bf16"),
        {"batch": 3},
        "tbps",
        0.5,
        kernels={"left out": lambda: 0, "slow": lambda: 0, "fast": lambda: 0},
        peers=lambda: {"peer": lambda: 0, "best": lambda: 0},
        bounds={"sum": lambda: 0},
    )
    record = cell.record(3)
    assert record["variant"] == "fast" and record["value"] == 2.0
    assert record["tiles"] == {"slow": 1.0, "fast": 2.0}
    assert record["peers"] == {"peer": 3.0, "best": 4.0}
    assert record["best_peer"] == "best" and record["ratio"] == 0.5
    assert record["of_bounds"] == {"sum": 0.4}
    assert "2.00  peer 3.00  best 4.00  0.50 of best  0.40 of sum  fast" in bench.line(record)


def test_the_bytes_and_operations_of_the_shapes() -> None:
    assert bench_prefill.Shape(1, 8192, 32, 8, 128).flops(causal=False) == 4 * 32 * 8192**2 * 128
    (shape,) = (s for s in bench_decode.SHAPES if (s.batch, s.heads_kv) == (64, 8))
    assert shape.bytes_(2) == 64 * (2 * 8192 * 8 + 2 * 32) * 128 * 2


def test_the_bytes_of_a_merge() -> None:
    """A token and head: 256 bytes of each o, 4 of each lse."""
    assert bench_merge.moved(1, 2) == 32 * (3 * 256 + 3 * 4)


def test_pages_hold_the_same_keys() -> None:
    import torch

    k, v = (torch.randn(2, 64, 3, 8, generator=torch.manual_seed(i)) for i in range(2))
    (k_cache, v_cache), layout = bench_decode._paged(k, v, 16)
    for cache, x in ((k_cache, k), (v_cache, v)):
        assert torch.equal(cache[layout["block_table"].long()].view(x.shape), x)
    assert layout["seqlens_kv"].tolist() == [64, 64]


def test_every_op_of_the_bench_is_one() -> None:
    assert set(bench.CELLS) <= set(OPS)
