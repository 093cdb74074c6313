"""Public bug reports as small inputs with their right values: masks, units, numbers, tiles.

Each test is named by its report's row in rows.py. On a machine with a GPU the same tests run there.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from plain_inputs import BF16, FP16, FP32, Attend, close, column, rows, zeros


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hidden", [slice(4, 8), slice(0, 8), slice(2, 3), slice(0, 8, 3)])
def test_b01_a_row_whose_mask_is_all_false(
    attend: Attend, device: str, hidden: slice, causal: bool
) -> None:
    ones = torch.ones((1, 8, 1, 8), device=device)
    mask = torch.zeros((8, 8), dtype=torch.bool, device=device)
    mask[:, :4] = True
    mask[hidden] = False
    v = column(device, range(8), 8, FP32)
    o, lse = attend(ones, ones, v, mask=mask, causal=causal)
    count = np.minimum(np.arange(8) + 1.0, 4) if causal else np.full(8, 4.0)
    mean, log = (count - 1) / 2, math.sqrt(8) + np.log(count)
    mean[hidden], log[hidden] = 0.0, -math.inf
    close(o[0, :, 0], rows(mean), 1e-6)
    close(lse[0, 0], log, 1e-6)


def test_b01_the_causal_form(attend: Attend, device: str) -> None:
    ones, v = torch.ones((1, 8, 1, 8), device=device), column(device, range(4), 8, FP32)
    o, lse = attend(ones, ones[:, :4], v, causal=True)
    close(o[0, :, 0], rows([0, 0, 0, 0, 0, 0.5, 1, 1.5]))
    assert (lse[0, 0, :4] == -math.inf).all()
    assert lse.isfinite().sum() == 4


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_b02_the_most_negative_finite_float_is_not_minus_infinity(
    attend: Attend, device: str, dtype: torch.dtype
) -> None:
    q, v = zeros(device, 2, dtype=FP32), column(device, [1, 2, 3, 6], dtype=FP32)
    bias = torch.full((2, 4), torch.finfo(dtype).min, dtype=dtype, device=device)
    o, lse = attend(q, zeros(device, 4, dtype=FP32), v, bias=bias)
    close(o, 3.0)
    torch.testing.assert_close(lse, torch.full_like(lse, bias[0, 0].item() + math.log(4)))


def test_b05_the_lse_is_natural(attend: Attend, device: str) -> None:
    """Merged by hand: a base-2 lse would give 0.003740."""
    q = zeros(device, 1)
    o_a, lse_a = attend(q, zeros(device, 3072), column(device, [0.0] * 3072))
    o_b, lse_b = attend(q, zeros(device, 64), column(device, [1.0] * 64))
    close(lse_a[0, 0], [math.log(3072)], 2e-6)
    lse = torch.logaddexp(lse_a.double(), lse_b.double())
    merged = o_a * (lse_a - lse).exp() + o_b * (lse_b - lse).exp()
    close(merged, 64 / 3136)
    close(lse[0, 0], [8.050703], 2e-6)


@pytest.mark.parametrize("tk", [1, 2, 16, 17])
@pytest.mark.parametrize("more", [1, 3, 16, 20])
def test_b11_causal_with_more_queries_than_keys(
    attend: Attend, device: str, tk: int, more: int
) -> None:
    v = column(device, [10.0 * (j + 1) for j in range(tk)])
    o, lse = attend(zeros(device, tk + more), zeros(device, tk), v, causal=True)
    close(o[0, :, 0], rows([0.0] * more + [5.0 * (j + 2) for j in range(tk)]))
    close(lse[0, 0], [-math.inf] * more + [math.log(j + 1) for j in range(tk)])


def test_b11_causal_with_more_keys_than_queries(attend: Attend, device: str) -> None:
    o, lse = attend(zeros(device, 2), zeros(device, 5), column(device, range(5)), causal=True)
    close(o[0, :, 0], rows([1.5, 2.0]))
    close(lse[0, 0], [math.log(4), math.log(5)])


def test_b13_a_window_of_three_before_its_own_position(attend: Attend, device: str) -> None:
    v, window = column(device, range(8)), {"causal": True, "window_size": (3, 0)}
    o, _ = attend(zeros(device, 8), zeros(device, 8), v, **window)
    close(o[0, :, 0], rows([0, 0.5, 1, 1.5, 2.5, 3.5, 4.5, 5.5]))
    for causal in (True, False):
        step, _ = attend(zeros(device, 1), zeros(device, 8), v, causal=causal, window_size=(3, 0))
        assert torch.equal(step[0, 0], o[0, 7])
    v = column(device, range(256), dtype=FP32)
    q, k = zeros(device, 1, dtype=FP32), zeros(device, 256, dtype=FP32)
    o, lse = attend(q, k, v, causal=True, window_size=(127, -1))
    close(o, 191.5, 1e-4)
    close(lse[0, 0], [4.852030], 2e-6)


@pytest.mark.parametrize("left", [0, 3, 15, 16, 17])
@pytest.mark.parametrize("offset", [0, 5, 16, 31])
def test_b13_the_edges_of_tiles(attend: Attend, device: str, left: int, offset: int) -> None:
    v = column(device, range(48), dtype=FP32)
    q, k = zeros(device, 17, dtype=FP32), zeros(device, 48, dtype=FP32)
    o, lse = attend(q, k, v, causal=True, window_size=(left, 0), causal_offset=offset)
    last = np.arange(17.0) + offset
    first = np.maximum(last - left, 0)
    close(o[0, :, 0], rows((first + last) / 2), 1e-5)
    close(lse[0, 0], np.log(last - first + 1))


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_b15_keys_outside_the_window_may_hold_nan(attend: Attend, device: str, junk: float) -> None:
    """The dense form: rows of k and v that no query sees, on either side."""
    k, v = zeros(device, 40), column(device, range(40))
    k[:, :26] = v[:, :26] = junk
    k[:, 30:] = v[:, 30:] = junk
    o, lse = attend(zeros(device, 1), k, v, causal=True, window_size=(3, 0), causal_offset=29)
    close(o, 27.5)
    close(lse[0, 0], [1.386294])


@pytest.mark.parametrize("junk", [math.nan, math.inf])
@pytest.mark.parametrize("length", [5, 16, 17])
def test_b28_a_cache_that_is_longer_than_its_keys(
    attend: Attend, device: str, junk: float, length: int
) -> None:
    """The dense form: k and v are the first rows of a buffer whose rest is junk."""
    k, v = (torch.full((1, 64, 1, 16), junk, dtype=FP16, device=device) for _ in "kv")
    k[:, :length] = 0
    v[:, :length] = 1
    v[:, length - 1] = 1 + length
    o, lse = attend(zeros(device, 3), k[:, :length], v[:, :length])
    close(o, 2.0, 1e-3)
    close(lse[0, 0], [math.log(length)] * 3)


@pytest.mark.parametrize("cap", [1.0, 0.1, 50.0])
def test_b16_the_softcap_comes_before_the_mask(attend: Attend, device: str, cap: float) -> None:
    """Masked after the cap a score would weigh exp(-cap); 1 would be 0.731059."""
    o, _ = attend(
        zeros(device, 2), zeros(device, 2), column(device, [1, 0]), causal=True, softcap=cap
    )
    assert o[0, 0, 0, 0] == 1.0
    mask = torch.tensor([[True, False], [False, True]], device=device)
    o, _ = attend(
        zeros(device, 2), zeros(device, 2), column(device, [1, 0]), mask=mask, softcap=cap
    )
    close(o[0, :, 0], rows([1.0, 0.0]), 0)


@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize(("scale", "lse"), [(None, -21720.934), (1.0, -245758.61)])
@pytest.mark.parametrize("causal", [False, True])
def test_b19_scores_below_any_finite_stand_in_for_minus_infinity(
    attend: Attend, device: str, dtype: torch.dtype, scale: float | None, lse: float, causal: bool
) -> None:
    q = torch.full((1, 1, 1, 128), 16.0, dtype=dtype, device=device)
    k = torch.full((1, 4, 1, 128), -120.0, dtype=dtype, device=device)
    v = column(device, [1, 2, 3, 6], dtype=dtype)
    o, got = attend(q, k, v, sm_scale=scale, causal=causal)
    close(o, 3.0)
    close(got[0, 0], [lse], 0.02)


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, -0.5, 1e-45, -1e-45, 2.0])
def test_b20_scales_of_zero_and_below(attend: Attend, device: str, scale: float) -> None:
    q, k = zeros(device, 2, dtype=FP32), zeros(device, 2, dtype=FP32)
    q[..., 0], k[0, :, 0, 0] = 1.0, torch.tensor([1.0, 3.0])
    v = column(device, [1, 0], dtype=FP32)
    o, lse = attend(q, k, v, causal=True, sm_scale=scale)
    weight = 1 / (1 + math.exp(2 * scale))
    close(o[0, :, 0], rows([1.0, weight]))
    close(lse[0, 0], [scale, scale + math.log1p(math.exp(2 * scale))])
    if scale == -1.0:
        close(o[0, 1, 0], 0.880797)
        close(lse[0, 0], [-1.0, -0.873072])


def test_b22_float32_is_not_tf32(attend: Attend, device: str) -> None:
    """tf32 gives 0.5; the interpreter ignores the precision, so compiled code is read as well."""
    q = torch.full((1, 1, 1, 64), 1 + 2.0**-12, device=device)
    k = torch.full((1, 2, 1, 64), 1024.0, device=device)
    k[:, 0] = 1024 * (1 + 2.0**-12)
    o, lse = attend(q, k, column(device, [1, 0], dtype=FP32), sm_scale=0.125)
    close(o, 0.88085, 5e-4)
    close(lse[0, 0], [8196.127], 2e-3)


@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("d", "dv"), [*((d, d) for d in (72, 80, 96, 112, 160, 192)), (64, 96), (96, 64), (8, 24)]
)
def test_b23_only_the_last_column_counts(
    attend: Attend, device: str, d: int, dv: int, causal: bool, dtype: torch.dtype
) -> None:
    q, k, v = (zeros(device, n, w, dtype) for n, w in ((1, d), (2, d), (2, dv)))
    q[..., -1], k[0, 0, 0, -1], v[0, 0, 0, -1] = 1.0, 2.0, 1.0
    o, lse = attend(q, k, v, sm_scale=1.0, causal=causal)
    assert o.shape == (1, 1, 1, dv)
    close(o[..., -1:], 0.880797, 5e-4 if dtype == FP16 else 1e-6)
    assert not o[..., :-1].any()
    close(lse[0, 0], [2.126928], 2e-6)


@pytest.mark.parametrize("kv_len", [1, 15, 16, 17, 127, 129])
@pytest.mark.parametrize("seqlen_q", [1, 3])
@pytest.mark.parametrize("dtype", [FP16, BF16])
def test_b25_lengths_off_the_tile(
    attend: Attend, device: str, kv_len: int, seqlen_q: int, dtype: torch.dtype
) -> None:
    q, k = zeros(device, seqlen_q, dtype=dtype), zeros(device, kv_len, dtype=dtype)
    o, lse = attend(q, k, column(device, [1.0] * kv_len, dtype=dtype))
    close(o, 1.0, 0)
    close(lse[0, 0], [math.log(kv_len)] * seqlen_q, 2e-6)
