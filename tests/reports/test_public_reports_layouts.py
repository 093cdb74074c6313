"""Public bug reports as small inputs with their right values: packed sequences and paged caches.

Each test is named by its report's row in rows.py. On a machine with a GPU the same tests run there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from plain_inputs import BF16, FP16, FP32, Attend, close, rows

import attngen
from attngen.interpret import interpreting

Cache = tuple[torch.Tensor, torch.Tensor]
D = 16


def pages(device: str, shape: tuple[int, int], junk: float = math.nan, columns: int = D) -> Cache:
    """Two caches of one head that hold junk: [num_pages, page_size, 1, columns] in float16."""
    k, v = (torch.full((*shape, 1, columns), junk, dtype=FP16, device=device) for _ in "kv")
    return k, v


def integers(device: str, *values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def zeros(device: str, count: int, heads: int = 1, dtype: torch.dtype = FP16) -> torch.Tensor:
    return torch.zeros((count, heads, D), dtype=dtype, device=device)


def token(cache: Cache, page: int, slot: int, value: float) -> None:
    """Put a key of 0 and a value in a slot."""
    cache[0][page, slot], cache[1][page, slot] = 0.0, value


def of_two_pages(device: str, junk: float) -> tuple[torch.Tensor, ...]:
    """B28: five tokens in pages 3 and 1, all of value 1 but the last, which is 6."""
    cache = pages(device, (5, 4), junk)
    for slot in range(4):
        token(cache, 3, slot, 1.0)
    token(cache, 1, 0, 6.0)
    return (*cache, integers(device, [3, 1]), integers(device, 5))


@pytest.mark.parametrize("left", [3, 2, 6])
def test_b15_pages_outside_the_window_hold_nan(
    attend_paged: Attend, device: str, left: int
) -> None:
    """Freed pages: neither their numbers nor their entries in the table are of use."""
    cache = pages(device, (4, 4))
    for position in range(9 - left, 10):
        token(cache, 3 - position // 4, position % 4, position)
    table = integers(device, [3, 2, 1])
    table[0, : (9 - left) // 4] = 2**30
    o, lse = attend_paged(
        zeros(device, 1), *cache, table, integers(device, 10), causal=True, window_size=(left, 0)
    )
    close(o, 9 - left / 2)
    close(lse, [[math.log(left + 1)]])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "dv"), [(72, 72), (80, 80), (96, 96), (112, 112), (64, 96)])
def test_b23_only_the_last_column_counts_in_pages(
    attend_paged: Attend, device: str, d: int, dv: int, causal: bool
) -> None:
    k, v = (torch.zeros((1, 2, 1, n), dtype=FP16, device=device) for n in (d, dv))
    q = torch.zeros((1, 1, d), dtype=FP16, device=device)
    q[..., -1], k[0, 0, 0, -1], v[0, 0, 0, -1] = 1.0, 2.0, 1.0
    table, lengths = integers(device, [0]), integers(device, 2)
    o, lse = attend_paged(q, k, v, table, lengths, sm_scale=1.0, causal=causal)
    close(o[..., -1], 0.880797, 5e-4)
    assert not o[..., :-1].any()
    close(lse, [[2.126928]], 2e-6)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 127, 129])
@pytest.mark.parametrize("seqlen_q", [1, 3])
def test_b25_lengths_off_the_page(
    attend_paged: Attend, device: str, length: int, seqlen_q: int
) -> None:
    cache = pages(device, (12, 16))
    for position in range(length):
        token(cache, 11 - position // 16, position % 16, 1.0)
    table = integers(device, [*range(11, 3, -1), 3])
    o, lse = attend_paged(
        zeros(device, seqlen_q),
        *cache,
        table,
        integers(device, length),
        cu_seqlens_q=integers(device, 0, seqlen_q),
        max_seqlen_q=seqlen_q,
    )
    close(o, 1.0, 0)
    close(lse, [[math.log(length)] * seqlen_q], 2e-6)


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_b28_unused_slots_hold_nan(attend_paged: Attend, device: str, junk: float) -> None:
    o, lse = attend_paged(zeros(device, 1), *of_two_pages(device, junk))
    close(o, 2.0, 1e-3)
    close(lse, [[1.609438]])


def in_one_buffer(k: torch.Tensor, v: torch.Tensor) -> Cache:
    both = torch.stack((k, v), 1)
    return both[:, 0], both[:, 1]


def by_heads(k: torch.Tensor, v: torch.Tensor) -> Cache:
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
    return k, v


def by_heads_in_one_buffer(k: torch.Tensor, v: torch.Tensor) -> Cache:
    both = torch.stack((k.transpose(1, 2), v.transpose(1, 2)), 1)
    return both[:, 0].transpose(1, 2), both[:, 1].transpose(1, 2)


def by_slots(k: torch.Tensor, v: torch.Tensor) -> Cache:
    """k and v of a token beside each other."""
    both = torch.cat((k, v), 3)
    return both[..., :D], both[..., D:]


@pytest.mark.parametrize(
    "layout", [in_one_buffer, by_heads, by_heads_in_one_buffer, by_slots], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_b30_layouts_of_caches(
    attend_paged: Attend, device: str, junk: float, layout: Callable[..., Cache]
) -> None:
    k, v, *pages_of = of_two_pages(device, junk)
    k, v = (x.repeat(1, 1, 3, 1) for x in (k, v))
    v = v * torch.tensor([1.0, 2.0, 4.0], device=device, dtype=FP16)[:, None]
    q = zeros(device, 1, heads=3)
    expected, lse = attend_paged(q, k, v, *pages_of)
    close(expected, np.array([2.0, 4.0, 8.0])[:, None], 4e-3)
    o, same = attend_paged(q, *layout(k, v), *pages_of)
    assert torch.equal(o, expected) and torch.equal(lse, same)


def apart(x: torch.Tensor, distance: int) -> torch.Tensor:
    """The same numbers with `distance` elements from one index of the first dimension to the next.

    Only the pages of the buffer that are written take memory.
    """
    last = (x.shape[0] - 1) * distance + x[0].numel() - 1
    buffer = torch.empty(last + 1, dtype=x.dtype, device=x.device)
    return buffer.as_strided(x.shape, (distance, *x.stride()[1:])).copy_(x)


@pytest.mark.skipif(not interpreting(), reason="takes gigabytes that are there only in name")
def test_b33_packed_rows_and_pages_far_apart(
    attend_varlen: Attend, attend_paged: Attend, device: str
) -> None:
    v = torch.arange(66.0)[:, None, None].repeat(1, 1, D).to(FP16)
    q, k = zeros(device, 2), apart(zeros(device, 66), 2**25)
    lengths = integers(device, 0, 1, 2), integers(device, 0, 33, 66)
    o, _ = attend_varlen(q, k, apart(v, 2**25), *lengths, 1, 33)
    close(o[:, 0], rows([16.0, 49.0]), 0.02)
    cache = (apart(x.reshape(6, 11, 1, D), 2**29) for x in (zeros(device, 66), v))
    table = integers(device, [2, 1, 0], [3, 4, 5])
    o, _ = attend_paged(q, *cache, table, integers(device, 33, 33))
    close(o[:, 0], rows([16.0, 49.0]), 0.02)


def test_b42_70000_packed_sequences(
    attend_varlen: Attend, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launched on a GPU; in the interpreter the grid alone."""
    count = 70000
    q, v = zeros(device, count), torch.rand((count, 1, D), device=device).to(FP16)
    cu = torch.arange(count + 1, dtype=torch.int32, device=device)
    if not interpreting():
        o, _ = attend_varlen(q, q, v, cu, cu, 1, 1)
        assert torch.equal(o, v)
        return
    attend_varlen(q[:1], q[:1], v[:1], cu[:2], cu[:2], 1, 1)
    from attngen import finder

    module: Any = finder.find(attngen.AttentionVarlen(head_dim=D, dtype="fp16"))
    grids: list[tuple[int, ...]] = []

    class Launches:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *args, **kwargs: None

    monkeypatch.setattr(module, "_KERNEL", Launches())
    attend_varlen(q, q, v, cu, cu, 1, 1)
    ((tiles,),) = grids
    assert tiles >= count


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [((), ()), ((0, 0, 0), (2, 0, 1)), ((1, 2), (0, 0)), ((0, 1, 0, 1), (3, 0, 0, 2))],
)
def test_b43_packed_inputs_of_size_zero(
    attend_varlen: Attend,
    attend_paged: Attend,
    device: str,
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    causal: bool,
) -> None:
    q, k = zeros(device, sum(queries), 2), zeros(device, sum(keys))
    cu_q, cu_kv = (torch.tensor([0, *x]).cumsum(0).int().to(device) for x in (queries, keys))
    table = torch.arange(len(keys), dtype=torch.int32, device=device)[:, None]
    cache = torch.zeros((len(keys), 4, 1, D), dtype=FP16, device=device)
    lengths = torch.tensor(keys, dtype=torch.int32, device=device)
    varlen = attend_varlen(q, k, k + 1, cu_q, cu_kv, 2, 3, causal=causal)
    paged = attend_paged(q, cache, cache + 1, table, lengths, cu_seqlens_q=cu_q, causal=causal)
    for o, lse in (varlen, paged):
        assert (o.shape, o.dtype) == ((sum(queries), 2, D), FP16)
        assert (lse.shape, lse.dtype) == ((2, sum(queries)), FP32)
        seen = np.repeat([n > 0 for n in keys], queries)
        close(o[:, :, 0], np.where(seen, 1.0, 0.0)[:, None], 0)
        assert np.array_equal(lse[0].cpu().isfinite().numpy(), seen)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"page_size": 0}, ValueError, "k_cache: got page size 0, allowed is 1 and up"),
        ({"num_splits": -1}, ValueError, "num_splits: got -1, allowed is None or 0 and up"),
        ({"table": [0]}, ValueError, r"block_table: got shape \(1,\), allowed is \[batch, max_pag"),
        ({"dtype": BF16}, TypeError, "k_cache: got torch.float16, allowed is torch.bfloat16"),
    ],
)
def test_b55_wrong_calls_of_paged_attention(
    attend_paged: Attend, device: str, change: dict[str, Any], error: type[Exception], told: str
) -> None:
    cache = pages(device, (1, change.pop("page_size", 4)))
    table = integers(device, *change.pop("table", [[0]]))
    q = zeros(device, 1, dtype=change.pop("dtype", FP16))
    with pytest.raises(error, match=told):
        attend_paged(q, *cache, table, integers(device, 1), **change)
