"""Public bug reports, turned into small inputs; each test is named by the report's id."""

import math

import numpy as np
import pytest

from attngen.reference import (
    attention,
    attention_paged,
    attention_varlen,
    cascade_attention,
    merge_state,
    merge_states,
    naive_softmax,
    online_attention,
    online_softmax,
    safe_softmax,
)

both = pytest.mark.parametrize("f", [attention, online_attention])
LN2 = math.log(2)


def column(values):
    """Values v_j as v [1, seqlen_kv, 1, 1]."""
    return np.asarray(values, np.float64).reshape(1, -1, 1, 1)


def zeros(length, head_dim=8):
    """q or k that make every score 0."""
    return np.zeros((1, length, 1, head_dim))


@both
def test_b01_a_row_whose_mask_is_all_false(f):
    ones = np.ones((1, 8, 1, 8), np.float32)
    v = column(range(8)) * np.ones(8)
    mask = np.zeros((8, 8), bool)
    mask[:4, :4] = True
    o, lse = f(ones, ones, v, mask=mask)
    np.testing.assert_allclose(o[0, :4], 1.5)
    np.testing.assert_allclose(lse[0, 0, :4], 4.214721, atol=1e-6)
    np.testing.assert_array_equal(o[0, 4:], 0.0)
    np.testing.assert_array_equal(lse[0, 0, 4:], -np.inf)
    # The causal form, with 8 queries and 4 keys.
    o, lse = f(ones, ones[:, :4], v[:, :4], causal=True)
    np.testing.assert_array_equal(o[0, :4], 0.0)
    np.testing.assert_array_equal(lse[0, 0, :4], -np.inf)
    np.testing.assert_allclose(o[0, 4:, 0, 0], [0, 0.5, 1, 1.5])


@both
def test_b02_the_most_negative_finite_float_is_not_minus_infinity(f):
    low = np.full((1, 4), -3.4028235e38, np.float32)
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_array_equal(softmax(low), np.full((1, 4), 0.25))
    assert np.isnan(naive_softmax(low)).all()
    o, lse = f(zeros(1), zeros(4), column([1, 2, 3, 6]), bias=low)
    assert o.item() == 3.0
    assert lse.item() == pytest.approx(-3.4028235e38)


def test_b04_merging_empty_states():
    empty = np.zeros((1, 1, 2)), np.full((1, 1), -np.inf)
    nan = np.full((1, 1, 2), np.nan), np.full((1, 1), -np.inf)
    a = np.array([[[1.5, -0.0]]]), np.array([[0.25]])
    b = np.array([[[-2.0, 3.0]]]), np.array([[-1.0]])
    o, lse = merge_state(*empty, *empty)
    assert (o == 0).all()
    assert lse == -np.inf
    ab = merge_state(*a, *b)
    for e in (empty, nan):
        for states, expected in [
            ([e, e, e], empty),
            ([e, a, b], ab),
            ([a, e, b], ab),
            ([a, b, e], ab),
        ]:
            o, lse = merge_states(*(np.stack(x) for x in zip(*states, strict=True)))
            assert o.tobytes() == expected[0].tobytes()
            assert lse.tobytes() == expected[1].tobytes()
        for merged in (merge_state(*e, *a), merge_state(*a, *e)):
            assert merged[0].tobytes() == a[0].tobytes()
            assert merged[1].tobytes() == a[1].tobytes()


@both
def test_b05_the_lse_is_natural(f):
    prefix = f(zeros(1), zeros(3072), column(np.zeros(3072)))
    suffix = f(zeros(1), zeros(64), column(np.ones(64)))
    o, lse = merge_state(prefix[0], prefix[1], suffix[0], suffix[1])
    assert o.item() == pytest.approx(64 / 3136, rel=1e-12)
    assert lse.item() == pytest.approx(8.050703, abs=1e-6)
    # What base 2 would have given.
    o, _ = merge_state(prefix[0], prefix[1] / LN2, suffix[0], suffix[1] / LN2)
    assert o.item() == pytest.approx(0.003740, abs=1e-6)


@pytest.mark.parametrize("layout", ["ht", "th"])
def test_b06_lse_by_heads_and_tokens(layout):
    h, t = np.arange(4.0)[:, None] * np.ones(4), np.arange(4.0)[None, :] * np.ones((4, 1))
    one, zero = np.ones((4, 4, 1)), np.zeros((4, 4, 1))
    lse_a, lse_b = (h, t) if layout == "ht" else (h.T, t.T)
    o, lse = merge_state(one, lse_a, zero, lse_b, lse_layout=layout)
    lse = lse if layout == "ht" else lse.T
    assert o[0, 3, 0] == pytest.approx(0.952574, abs=1e-6)
    assert o[3, 0, 0] == pytest.approx(0.047426, abs=1e-6)
    assert lse[3, 0] == pytest.approx(3.048587, abs=1e-6)
    assert lse[0, 3] == pytest.approx(3.048587, abs=1e-6)


def test_b10_a_shared_prefix():
    queries, suffixes = [1, 1, 3], [1, 1, 3]
    cu = np.concatenate([[0], np.cumsum(queries)])
    q = np.zeros((5, 1, 8))
    suffix = (
        np.zeros((5, 1, 8)),
        np.zeros((5, 1, 1)),
        cu,
        np.concatenate([[0], np.cumsum(suffixes)]),
    )
    prefix = (np.zeros((8, 1, 8)), np.ones((8, 1, 1)), [0, 5], [0, 8])
    o, lse = cascade_attention(q, [prefix, suffix], causal=True)
    np.testing.assert_allclose(o[:, 0, 0], [0.888889, 0.888889, 0.888889, 0.8, 0.727273], atol=1e-6)
    np.testing.assert_allclose(lse[0], np.log([9, 9, 9, 10, 11]))
    # A prefix of length 0 gives the suffix alone, bit for bit.
    none = (np.zeros((0, 1, 8)), np.zeros((0, 1, 1)), [0, 5], [0, 0])
    o, lse = cascade_attention(q, [none, suffix], causal=True)
    expected = attention_varlen(q, suffix[0], suffix[1], cu, suffix[3], causal=True)
    np.testing.assert_array_equal(o, expected[0])
    np.testing.assert_array_equal(lse, expected[1])
    # Only the first two requests share it.
    some = (prefix[0], prefix[1], [0, 2, 5], [0, 8, 8])
    o, lse = cascade_attention(q, [some, suffix], causal=True)
    np.testing.assert_allclose(o[:, 0, 0], [8 / 9, 8 / 9, 0, 0, 0])
    np.testing.assert_allclose(lse[0], np.log([9, 9, 1, 2, 3]))


@both
def test_b11_causal_with_more_queries_than_keys(f):
    o, lse = f(zeros(5), zeros(2), column([10, 20]), causal=True)
    np.testing.assert_allclose(o[0, :, 0, 0], [0, 0, 0, 10, 15])
    np.testing.assert_allclose(lse[0, 0], [-np.inf, -np.inf, -np.inf, 0, 0.693147], atol=1e-6)
    o, lse = f(zeros(2), zeros(5), column(range(5)), causal=True)
    np.testing.assert_allclose(np.exp(lse[0, 0]), [4, 5])
    np.testing.assert_allclose(o[0, :, 0, 0], [1.5, 2])


@both
def test_b13_a_window_of_three_before_its_own_position(f):
    v = column(range(8))
    o, _ = f(zeros(8), zeros(8), v, causal=True, window_size=(3, 0))
    np.testing.assert_allclose(o[0, :, 0, 0], [0, 0.5, 1, 1.5, 2.5, 3.5, 4.5, 5.5], atol=1e-15)
    step, _ = f(zeros(1), zeros(8), v, window_size=(3, 0))
    assert step.item() == o[0, 7, 0, 0]
    o, lse = f(zeros(1), zeros(256), column(range(256)), causal=True, window_size=(127, -1))
    assert o.item() == pytest.approx(191.5)
    assert lse.item() == pytest.approx(4.852030, abs=1e-6)


def test_b15_pages_outside_the_window_may_hold_nan():
    k_cache, v_cache = np.zeros((3, 4, 1, 8)), np.arange(12.0).reshape(3, 4, 1, 1)
    for t in range(6):
        k_cache[t // 4, t % 4] = v_cache[t // 4, t % 4] = np.nan
    k_cache[2, 2:] = v_cache[2, 2:] = np.nan
    o, lse = attention_paged(
        np.zeros((1, 1, 8)), k_cache, v_cache, [[0, 1, 2]], [10], causal=True, window_size=(3, 0)
    )
    assert o.item() == 7.5
    assert lse.item() == pytest.approx(1.386294, abs=1e-6)


@both
def test_b16_the_softcap_comes_before_the_mask(f):
    o, _ = f(zeros(2), zeros(2), column([1, 0]), causal=True, softcap=1.0)
    assert o[0, 0, 0, 0] == 1.0


@both
@pytest.mark.parametrize(("scale", "lse"), [(None, -21720.934), (1.0, -245758.61)])
def test_b19_scores_below_any_finite_stand_in_for_minus_infinity(f, scale, lse):
    q, k = np.full((1, 1, 1, 128), 16.0), np.full((1, 4, 1, 128), -120.0)
    o, got = f(q, k, column([1, 2, 3, 6]), sm_scale=scale)
    assert o.item() == pytest.approx(3.0, rel=1e-12)
    assert got.item() == pytest.approx(lse, abs=6e-3)


@both
def test_b20_scales_of_zero_and_below(f):
    q, k = np.zeros((1, 2, 1, 16)), np.zeros((1, 2, 1, 16))
    q[..., 0], k[0, :, 0, 0] = 1.0, [1.0, 3.0]
    o, lse = f(q, k, column([1, 0]), causal=True, sm_scale=0.0)
    np.testing.assert_allclose(o[0, :, 0, 0], [1, 0.5])
    np.testing.assert_allclose(lse[0, 0], [0, 0.693147], atol=1e-6)
    o, lse = f(q, k, column([1, 0]), causal=True, sm_scale=-1.0)
    np.testing.assert_allclose(o[0, :, 0, 0], [1, 0.880797], atol=1e-6)
    np.testing.assert_allclose(lse[0, 0], [-1, -0.873072], atol=1e-6)


@both
def test_b22_float32_is_not_tf32(f):
    q = np.full((1, 1, 1, 64), 1 + 2.0**-12, np.float32)
    k = np.full((1, 2, 1, 64), 1024, np.float32)
    k[:, 0] = 1024 * (1 + 2.0**-12)
    o, lse = f(q, k, column([1, 0]), sm_scale=0.125)
    assert o.item() == pytest.approx(0.88085, abs=5e-4)
    assert lse.item() == pytest.approx(8196.127, abs=1e-3)


@both
@pytest.mark.parametrize("head_dim", [72, 80, 96, 112, 160, 192])
def test_b23_only_the_last_column_counts(f, head_dim):
    q, k, v = (np.zeros((1, n, 1, head_dim)) for n in (1, 2, 2))
    q[..., -1], k[0, 0, 0, -1], v[0, 0, 0, -1] = 1.0, 2.0, 1.0
    o, lse = f(q, k, v, sm_scale=1.0)
    assert o[0, 0, 0, -1] == pytest.approx(0.880797, abs=1e-6)
    assert lse.item() == pytest.approx(2.126928, abs=1e-6)
    np.testing.assert_array_equal(o[..., :-1], 0.0)
    cache = k.reshape(1, 2, 1, head_dim), v.reshape(1, 2, 1, head_dim)
    paged, _ = attention_paged(q[0], *cache, [[0]], [2], sm_scale=1.0)
    np.testing.assert_array_equal(paged, o[0])
    half = (o[0], lse[0])
    merged, _ = merge_state(*half, *half)
    assert merged[0, 0, -1] == pytest.approx(0.880797, abs=1e-6)


@both
def test_b23_values_wider_than_keys(f):
    q, k, v = np.zeros((1, 1, 1, 64)), np.zeros((1, 2, 1, 64)), np.zeros((1, 2, 1, 96))
    q[..., -1], k[0, 0, 0, -1], v[0, 0, 0, -1] = 1.0, 2.0, 1.0
    o, _ = f(q, k, v, sm_scale=1.0)
    assert o.shape == (1, 1, 1, 96)
    assert o[0, 0, 0, -1] == pytest.approx(0.880797, abs=1e-6)


@both
@pytest.mark.parametrize("kv_len", [1, 15, 17, 127, 129])
@pytest.mark.parametrize("seqlen_q", [1, 3])
def test_b25_lengths_off_the_tile(f, kv_len, seqlen_q):
    o, lse = f(zeros(seqlen_q), zeros(kv_len), column(np.ones(kv_len)))
    np.testing.assert_allclose(o, 1.0)
    np.testing.assert_allclose(lse, math.log(kv_len), atol=1e-15)


@pytest.mark.parametrize("junk", [np.nan, np.inf])
def test_b28_unused_slots_of_the_last_page(junk):
    k_cache, v_cache = np.full((4, 4, 1, 8), junk), np.full((4, 4, 1, 1), junk)
    k_cache[3], k_cache[1, 0], v_cache[3], v_cache[1, 0] = 0.0, 0.0, 1.0, 6.0
    o, lse = attention_paged(np.zeros((1, 1, 8)), k_cache, v_cache, [[3, 1]], [5])
    assert o.item() == pytest.approx(2.0)
    assert lse.item() == pytest.approx(1.609438, abs=1e-6)


def test_b43_inputs_of_size_zero():
    o, lse = attention(np.zeros((0, 3, 2, 8)), *[np.zeros((0, 4, 1, 8))] * 2)
    assert (o.shape, lse.shape) == ((0, 3, 2, 8), (0, 2, 3))
    k = np.zeros((5, 1, 8))
    o, lse = attention_varlen(np.zeros((0, 2, 8)), k, k, [0, 0, 0, 0], [0, 2, 2, 5])
    assert (o.shape, lse.shape) == ((0, 2, 8), (2, 0))
    o, lse = attention_varlen(np.zeros((2, 2, 8)), k[:0], k[:0], [0, 0, 1, 1, 2], [0] * 5)
    np.testing.assert_array_equal(o, 0.0)
    np.testing.assert_array_equal(lse, -np.inf)
    o, lse = merge_state(*[np.zeros((0, 2, 8)), np.zeros((2, 0))] * 2)
    assert (o.shape, lse.shape) == ((0, 2, 8), (2, 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softcap": 0.0}, "softcap: got"),
        ({"softcap": -1.0}, "softcap: got"),
        ({"sm_scale": math.nan}, "sm_scale: got nan"),
        ({"window_size": (-2, 0)}, "window_size: got"),
    ],
)
@both
def test_b55_wrong_options_are_named(f, options, message):
    with pytest.raises(ValueError, match=message):
        f(zeros(2), zeros(2), column([1, 2]), **options)
