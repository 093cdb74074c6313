"""Lengths of a cache, on the device, that nobody checked: what is past a tensor is cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import load, store  # noqa: E402
from attngen.variant import parse  # noqa: E402

NAMES = [
    "attention_paged_d16_fp16_m16_n16_w1_s1",
    "attention_paged_d16_fp16_causal_m16_n32_w1_s1",
]


def cumulative(device: str, *lengths: int) -> Any:
    return torch.tensor([0, *lengths], device=device).cumsum(0).int()


def queries(device: str, rows: int) -> Any:
    return torch.randn((rows, 4, 16), generator=torch.manual_seed(1)).half().to(device)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [None, 20])
def test_lengths_out_of_range_are_cut(
    device: str, tmp_path: Path, name: str, most: int | None
) -> None:
    """They are on the device, where no launcher sees them: the table has room for 3 pages of 8."""
    store.write(parse(name), tmp_path)
    kernel = load(name, [tmp_path])
    k_cache, v_cache = torch.randn((2, 9, 8, 2, 16), generator=torch.manual_seed(0)).half()
    cache = [x.to(device) for x in (k_cache, v_cache)]
    q = queries(device, 25)
    table = torch.arange(9, dtype=torch.int32, device=device).view(3, 3)
    options = {"cu_seqlens_q": cumulative(device, 3, 5, 17), "max_seqlen_kv": most}

    def call(lengths: tuple[int, ...], dtype: Any) -> Any:
        seqlens = torch.tensor(lengths, dtype=dtype, device=device)
        return kernel.attention_paged(q, *cache, table, seqlens, **options)

    right = call((most or 24, 0, 5), torch.int32)
    assert right[0].isfinite().all() and (right[1][:, 3:8] == -math.inf).all()
    for wild in ((2**31 - 1, -1, 5), (25, -(2**31), 5), (most or 24, 0, 5)):
        assert all(map(torch.equal, right, call(wild, torch.int32)))
    for wild in ((2**40, -(2**40), 5), (2**32 + 1, -(2**32) + 7, 5)):
        assert all(map(torch.equal, right, call(wild, torch.int64)))


@pytest.mark.parametrize("name", NAMES)
def test_rows_past_the_end_of_q_are_none(device: str, tmp_path: Path, name: str) -> None:
    store.write(parse(name), tmp_path)
    kernel = load(name, [tmp_path])
    cache = torch.randn((6, 8, 2, 16), generator=torch.manual_seed(0)).half().to(device)
    table = torch.arange(6, dtype=torch.int32, device=device).view(2, 3)
    lengths = torch.tensor([24, 9], dtype=torch.int32, device=device)

    def call(*bounds: int) -> Any:
        cu_seqlens_q = torch.tensor(bounds, dtype=torch.int32, device=device)
        q = queries(device, 40)
        return kernel.attention_paged(q, cache, cache, table, lengths, cu_seqlens_q=cu_seqlens_q)

    assert all(map(torch.equal, call(0, 17, 40), call(0, 17, 10**6)))
