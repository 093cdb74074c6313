"""The budget of merges holds for float32 arithmetic at its worst, and for little beyond that."""

import numpy as np
import pytest

from attngen.reference import merge_budget, merge_states
from attngen.reference.checks import compare
from attngen.reference.merge_forms import dense_states, merge_states_base2
from attngen.reference.rounding import FP8, round_to, spacing

T = 2.0**-22
LOG2_E = np.float32(1.4426950408889634)
F32 = np.float32
ROWS = (17, 3)


def drawn(n, family, seed=0):
    """o [n, tokens, heads, 24] and lse [n, tokens, heads], as float32 values."""
    rng = np.random.default_rng(seed)
    o = rng.standard_normal((n, *ROWS, 24), dtype=F32)
    lse = 3 * rng.standard_normal((n, *ROWS), dtype=F32)
    if family == "apart":
        lse[0] += 20
        o[1:] *= F32(1e6)
    elif family == "opposite":
        o[1:] = -o[:1] * F32(1 + 2.0**-10)
    elif family == "empties":
        lse[rng.random(lse.shape) < 0.4] = -np.inf
    elif family == "large":
        lse += F32(1e5)
    return o, lse


def simulate(o, lse, *, out_dtype="fp32", base2=False, scale=1.0, exp2_error=T, seed=0):
    """A merge in float32 whose approximate instructions err by as much as they may."""
    signs = np.random.default_rng(seed + 1).choice([-1.0, 1.0], size=lse.shape)
    m = lse.max(axis=0)
    m = np.where(m == -np.inf, F32(0), m)
    x = lse - m if base2 else (lse - m) * LOG2_E
    w = (np.exp2(x.astype(np.float64)) * (1 + signs * exp2_error)).astype(F32)
    total, acc = np.zeros(lse.shape[1:], F32), np.zeros(o.shape[1:], F32)
    for i in range(len(o)):
        total = total + w[i] * F32(1 + T)
    empty = total == 0
    total = np.where(empty, F32(1), total)
    for i in range(len(o)):
        share = (w[i].astype(np.float64) / total * (1 - signs[i] * T)).astype(F32)
        acc = acc + share[..., None] * np.where(np.isinf(lse[i])[..., None], 0, o[i])
    log_error = 1 + T * signs[0]
    log = np.log2(total.astype(np.float64)) * (1 if base2 else np.log(2)) * log_error
    total_lse = np.where(empty, -np.inf, m + log.astype(F32))
    alone = np.isfinite(lse).sum(axis=0) == 1
    which = np.isfinite(lse).argmax(axis=0)[None]
    acc = np.where(alone[..., None], np.take_along_axis(o, which[..., None], 0)[0], acc)
    total_lse = np.where(alone, np.take_along_axis(lse, which, 0)[0], total_lse)
    if out_dtype == "fp8":
        y = np.clip(acc.astype(np.float64) / scale, -448, 448)
        return np.rint(y / spacing(y, FP8)) * spacing(y, FP8), total_lse
    return round_to(acc, out_dtype), total_lse


FAMILIES = ["normal", "apart", "opposite", "empties", "large"]


@pytest.mark.parametrize("base2", [False, True])
@pytest.mark.parametrize("out_dtype", ["fp32", "fp16", "bf16", "fp8"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_float32_at_its_worst_is_within_the_budget(n, family, out_dtype, base2):
    for seed in range(3):
        o, lse = drawn(n, family, seed)
        o = o if out_dtype != "fp16" else np.clip(o, -6e4, 6e4)
        scale = 0.05 if out_dtype == "fp8" else 1.0
        got = simulate(o, lse, out_dtype=out_dtype, base2=base2, scale=scale, seed=seed)
        merge = merge_states_base2 if base2 else merge_states
        expected_o, expected_lse = merge(o, lse, lse_layout="th")
        expected_o = expected_o / scale
        if out_dtype == "fp8":
            expected_o = np.clip(expected_o, -448, 448)
        options = {"out_dtype": out_dtype, "base2": base2, "output_scale": scale}
        bounds = merge_budget(o, lse, lse_layout="th", **options)
        verdict = compare(*got, expected_o, expected_lse, *bounds, out_dtype="fp32")
        assert verdict.passed, verdict.failures


def ratio(got, o, lse):
    bounds = merge_budget(o, lse, lse_layout="th", out_dtype="fp32", block_states=len(o))
    return compare(*got, *merge_states(o, lse, lse_layout="th"), *bounds, out_dtype="fp32")


def test_the_budget_is_used_and_a_few_times_that_is_beyond_it():
    o, lse = drawn(2, "normal")
    assert ratio(simulate(o, lse), o, lse).o.ratio > 0.15
    assert not ratio(simulate(o, lse, exp2_error=16 * T), o, lse).passed


@pytest.mark.parametrize("fault", ["log2 for log", "weights in fp16", "lse in bf16", "o halved"])
def test_faults_are_beyond_the_budget(fault):
    o, lse = drawn(2, "normal")
    got_o, got_lse = simulate(o, lse)
    m = lse.max(axis=0)
    match fault:
        case "log2 for log":
            got_lse = m + (got_lse - m) * LOG2_E
        case "weights in fp16":
            w = round_to(np.exp(lse - got_lse), "fp16")
            got_o = (w[..., None] * o).sum(axis=0)
        case "lse in bf16":
            got_lse = round_to(got_lse, "bf16")
        case "o halved":
            got_o = got_o / 2
    assert not ratio((got_o, got_lse), o, lse).passed


def test_what_is_selected_has_no_budget():
    o, lse = drawn(3, "empties")
    lse[:, 0] = -np.inf
    lse[1, 1] = np.nan
    lse[0, 2], lse[1:, 2] = 1.5, np.inf
    o_bound, lse_bound = merge_budget(o, lse, lse_layout="th", out_dtype="fp32")
    assert (o_bound[:2] == 0).all() and (lse_bound[:3] == 0).all()
    assert (o_bound[2] == np.spacing(np.abs(o[0, 2])) / 2).all()
    ht_bounds = merge_budget(o, np.swapaxes(lse, -1, -2), out_dtype="fp32")
    np.testing.assert_array_equal(ht_bounds[0], o_bound)
    np.testing.assert_array_equal(np.swapaxes(ht_bounds[1], -1, -2), lse_bound)


def test_base2_is_the_natural_merge_in_other_units():
    o, lse = drawn(4, "empties")
    natural = merge_states(o, lse * np.log(2), lse_layout="th")
    o2, lse2 = merge_states_base2(o, lse, lse_layout="th")
    np.testing.assert_allclose(o2, natural[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(lse2 * np.log(2), natural[1], rtol=1e-12)


def test_lists_of_states_are_filled_up_with_empty_ones():
    rng = np.random.default_rng(0)
    o, lse = rng.normal(size=(6, 3, 4)), rng.normal(size=(3, 6))
    indptr = [0, 2, 2, 6]
    dense_o, dense_lse = dense_states(o, lse, indptr)
    assert dense_o.shape == (4, 3, 3, 4) and dense_lse.shape == (4, 3, 3)
    merged_o, merged_lse = merge_states(dense_o, dense_lse)
    for token, (first, last) in enumerate([(0, 2), (2, 2), (2, 6)]):
        one_o, one_lse = merge_states(o[first:last, None], lse.T[first:last, :, None])
        np.testing.assert_array_equal(merged_o[token], one_o[0])
        np.testing.assert_array_equal(merged_lse[:, token], one_lse[:, 0])
    assert dense_states(o[:0], lse[:, :0], [0])[0].shape == (0, 0, 3, 4)


def test_bad_arguments():
    o, lse = drawn(2, "normal")
    with pytest.raises(ValueError, match="out_dtype: got 'fp64'"):
        merge_budget(o, lse, lse_layout="th", out_dtype="fp64")
    with pytest.raises(ValueError, match=r"lse: got shape .*it fits lse_layout='th'"):
        merge_budget(o, lse, out_dtype="fp32")
