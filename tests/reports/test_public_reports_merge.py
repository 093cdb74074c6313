"""Public bug reports as small inputs with their right values: the merge of attention states.

Each test is named by its report's row in rows.py. On a machine with a GPU the same tests run there.
"""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from far_rows import apart
from plain_inputs import BF16, FP16, FP32, Attend, close, column, zeros

from attngen.interpret import interpreting

EMPTY = (-math.inf, math.inf)


def state(
    device: str, o: float, lse: float, tokens: int = 2, heads: int = 3, dtype: torch.dtype = FP16
) -> tuple[torch.Tensor, torch.Tensor]:
    """A state whose o is filled with one number and whose lse is another."""
    values = torch.full((tokens, heads, 16), o, dtype=dtype, device=device)
    return values, torch.full((heads, tokens), lse, device=device)


@pytest.mark.parametrize("junk", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("a", EMPTY)
@pytest.mark.parametrize("b", EMPTY)
def test_b04_two_empty_states(merge: Attend, device: str, a: float, b: float, junk: float) -> None:
    o, lse = merge(*state(device, junk, a), *state(device, junk, b))
    close(o, 0.0, 0)
    close(lse, -math.inf, 0)


@pytest.mark.parametrize("empty", EMPTY)
def test_b04_three_empty_states(merge: Attend, device: str, empty: float) -> None:
    states = [state(device, math.nan, empty) for _ in range(3)]
    o, lse = merge(*(torch.stack(x) for x in zip(*states, strict=True)))
    close(o, 0.0, 0)
    close(lse, -math.inf, 0)


@pytest.mark.parametrize("dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize("empty", EMPTY)
def test_b04_an_empty_state_first_last_and_between(
    merge: Attend, device: str, empty: float, dtype: torch.dtype
) -> None:
    full = [state(device, value, lse, dtype=dtype) for value, lse in ((-0.0, 3.25), (5.5, -40.0))]
    nothing = state(device, math.nan, empty, dtype=dtype)
    expected = merge(*full[0], *full[1])
    for order in permutations([nothing, *full]):
        o, lse = merge(*(torch.stack(x) for x in zip(*order, strict=True)))
        close(o, expected[0].double().cpu(), 1e-6)
        close(lse, expected[1].cpu(), 1e-6)
    for one in full:
        for o, lse in (merge(*one, *nothing), merge(*nothing, *one)):
            assert torch.equal(o, one[0]) and torch.equal(o.signbit(), one[0].signbit())
            assert torch.equal(lse, one[1])


def test_b05_two_states_of_the_attention_kernel(attend: Attend, merge: Attend, device: str) -> None:
    """A base-2 lse would give 0.003740."""
    q = zeros(device, 1)
    prefix = attend(q, zeros(device, 3072), column(device, [0.0] * 3072))
    suffix = attend(q, zeros(device, 64), column(device, [1.0] * 64))
    o, lse = merge(*prefix, *suffix)
    close(o, 64 / 3136, 1e-5)
    close(lse, 8.050703, 1e-5)


@pytest.mark.parametrize("layout", ["ht", "th"])
def test_b06_as_many_heads_as_tokens(merge: Attend, device: str, layout: str) -> None:
    o_a, by_head = torch.ones(4, 4, 16, device=device), torch.arange(4.0, device=device)
    lse_a, lse_b = by_head[:, None].expand(4, 4), by_head[None].expand(4, 4)
    if layout == "th":
        lse_a, lse_b = lse_a.mT, lse_b.mT
    o, lse = merge(o_a, lse_a, torch.zeros_like(o_a), lse_b, lse_layout=layout)
    close(o[0, 3], 0.952574)
    close(o[3, 0], 0.047426)
    ht = lse if layout == "ht" else lse.mT
    close(ht[3, 0], 3.048587)
    close(ht[0, 3], 3.048587)


def test_b08_in_place_on_a_head_dim_of_192(merge: Attend, device: str) -> None:
    generator = torch.Generator(device).manual_seed(0)
    o = torch.randn(2, 5, 3, 192, generator=generator, device=device).to(BF16)
    lse = torch.randn(2, 3, 5, generator=generator, device=device)
    expected = merge(o[0], lse[0], o[1], lse[1])
    for _ in range(100 if device == "cuda" else 2):
        a, b = o.clone(), lse.clone()
        out, out_lse = merge(a[0], b[0], a[1], b[1], out=a[0], out_lse=b[0])
        assert out.data_ptr() == a.data_ptr() and out_lse.data_ptr() == b.data_ptr()
        assert torch.equal(out, expected[0]) and torch.equal(out_lse, expected[1])


@pytest.mark.parametrize("d", [72, 80, 96, 112, 160, 192])
def test_b23_only_the_last_column_of_a_merge(merge: Attend, device: str, d: int) -> None:
    o, lse = torch.zeros(2, 1, 1, d, device=device, dtype=FP16), torch.zeros(2, 1, 1, device=device)
    o[0, ..., -1], lse[0] = 1.0, 2.0
    for merged, total in (merge(o[0], lse[0], o[1], lse[1]), merge(o, lse)):
        close(merged[..., -1], 0.880797, 3e-4)
        close(merged[..., :-1], 0.0, 0)
        close(total, 2.126928)


@pytest.mark.skipif(not interpreting(), reason="reads where a wrong offset would crash the process")
@pytest.mark.parametrize("dimension", [0, 1])
def test_b33_states_further_apart_than_int32(merge: Attend, device: str, dimension: int) -> None:
    values = torch.arange(12.0).reshape(3, 4)[..., None].expand(3, 4, 16).to(FP16)
    lse = torch.zeros(4, 3)
    far = apart(values, dimension, 2**30)
    out = apart(torch.full_like(values, math.nan).contiguous(), dimension, 2**30)
    o, _ = merge(far, lse, far, lse, out=out)
    close(o, values.double())
    o, _ = merge(apart(torch.stack([values, -values]), 0, 2**32), torch.stack([lse, lse]))
    close(o, 0.0, 0)


def test_b42_a_grid_of_70000_tokens(merge: Attend, device: str) -> None:
    """Launched whole on a GPU; the interpreter, which has no limit, takes a thousandth of it."""
    tokens = 70000 if device == "cuda" else 70
    o, lse = state(device, 2.0, 1.0, tokens, 4)
    merged, total = merge(o, lse, o, lse)
    close(merged, 2.0, 0)
    close(total, 1 + math.log(2))


@pytest.mark.parametrize(
    ("n", "shape"), [(2, (0, 3)), (2, (3, 0)), (0, (3, 2)), (0, (0, 2)), (1, (0, 0))]
)
def test_b43_merges_of_size_zero(
    merge: Attend, device: str, n: int, shape: tuple[int, int]
) -> None:
    tokens, heads = shape
    o = torch.ones(n, tokens, heads, 16, device=device, dtype=FP16)
    lse = torch.ones(n, heads, tokens, device=device)
    results = [merge(o, lse)] + ([merge(o[0], lse[0], o[1], lse[1])] if n == 2 else [])
    for merged, total in results:
        assert (merged.shape, merged.dtype) == ((tokens, heads, 16), FP16)
        assert (total.shape, total.dtype) == ((heads, tokens), FP32)
        if n == 0:
            close(merged, 0.0, 0)
            close(total, -math.inf, 0)
