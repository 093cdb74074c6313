import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attngen.reference import attention, merge_state, merge_states

laws = settings(max_examples=80)
EMPTY = -np.inf


@st.composite
def states(draw, count, tokens=3, heads=2, dim=4):
    """`count` states; some rows are empty, some lse are far apart."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    o = rng.normal(size=(count, tokens, heads, dim))
    lse = rng.normal(size=(count, heads, tokens)) * spread
    empty = rng.random(lse.shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    lse[empty] = EMPTY
    o[np.swapaxes(empty, -1, -2)] = 0.0
    return o, lse


def close(a, b):
    np.testing.assert_allclose(a[0], b[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(a[1], b[1], rtol=1e-12, atol=1e-13)


def bits(x):
    return np.ascontiguousarray(x, dtype=np.float64).view(np.int64)


@laws
@given(states(1))
def test_the_empty_state_is_the_identity_bit_for_bit(state):
    (o,), (lse,) = state
    nothing = np.full_like(o, np.nan), np.full_like(lse, EMPTY)
    for merged in (merge_state(o, lse, *nothing), merge_state(*nothing, o, lse)):
        np.testing.assert_array_equal(bits(merged[0]), bits(o))
        np.testing.assert_array_equal(bits(merged[1]), bits(lse))


@laws
@given(states(2))
def test_commutative(state):
    (o_a, o_b), (lse_a, lse_b) = state
    close(merge_state(o_a, lse_a, o_b, lse_b), merge_state(o_b, lse_b, o_a, lse_a))


@laws
@given(states(3))
def test_associative(state):
    (a, b, c) = zip(*state, strict=True)
    close(merge_state(*merge_state(*a, *b), *c), merge_state(*a, *merge_state(*b, *c)))


@laws
@given(states(5))
def test_merging_many_is_the_fold_in_any_order(state):
    o, lse = state
    one = merge_states(o, lse)
    close(one, merge_states(o[::-1], lse[::-1]))
    left, right = merge_states(o[:2], lse[:2]), merge_states(o[2:], lse[2:])
    close(one, merge_state(*left, *right))


@laws
@given(states(2), st.floats(-1e3, 1e3))
def test_a_common_shift_moves_lse_alone(state, shift):
    (o_a, o_b), (lse_a, lse_b) = state
    o, lse = merge_state(o_a, lse_a, o_b, lse_b)
    moved_o, moved_lse = merge_state(o_a, lse_a + shift, o_b, lse_b + shift)
    np.testing.assert_allclose(moved_o, o, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(moved_lse, lse + shift, rtol=1e-12, atol=1e-12)


@laws
@given(states(2))
def test_o_is_a_convex_combination(state):
    (o_a, o_b), (lse_a, lse_b) = state
    o, lse = merge_state(o_a, lse_a, o_b, lse_b)
    slack = 1e-15 * (np.abs(o_a) + np.abs(o_b))
    assert (o >= np.minimum(o_a, o_b) - slack).all()
    assert (o <= np.maximum(o_a, o_b) + slack).all()
    assert (lse >= np.maximum(lse_a, lse_b)).all()


@laws
@given(states(2))
def test_the_two_layouts_agree(state):
    (o_a, o_b), (lse_a, lse_b) = state
    o, lse = merge_state(o_a, lse_a, o_b, lse_b)
    other_o, other_lse = merge_state(o_a, lse_a.T, o_b, lse_b.T, lse_layout="th")
    np.testing.assert_array_equal(o, other_o)
    np.testing.assert_array_equal(lse, other_lse.T)


@laws
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 12), max_size=4), st.booleans())
def test_merging_the_splits_is_the_whole(seed, cuts, causal):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(1, 5, 4, 8)), rng.normal(size=(1, 12, 2, 8))
    v = rng.normal(size=(1, 12, 2, 3))
    edges = [0, *sorted(cuts), 12]
    parts = [
        attention(q, k[:, a:b], v[:, a:b], causal=causal, causal_offset=7 - a)
        for a, b in pairwise(edges)
    ]
    o, lse = (np.stack(x) for x in zip(*parts, strict=True))
    close(merge_states(o, lse), attention(q, k, v, causal=causal))


def test_both_empty_and_the_other_infinity():
    o = np.full((2, 1, 1), np.nan)
    for a in (EMPTY, np.inf):
        for b in (EMPTY, np.inf):
            merged_o, merged_lse = merge_state(o, np.full((1, 2), a), o, np.full((1, 2), b))
            np.testing.assert_array_equal(merged_o, np.zeros((2, 1, 1)))
            np.testing.assert_array_equal(merged_lse, np.full((1, 2), EMPTY))


def test_plus_infinity_on_input_means_empty():
    o, lse = np.array([[[-0.0, 5.0]]]), np.array([[2.5]])
    merged_o, merged_lse = merge_state(o, lse, np.full_like(o, np.inf), np.full_like(lse, np.inf))
    np.testing.assert_array_equal(bits(merged_o), bits(o))
    np.testing.assert_array_equal(bits(merged_lse), bits(lse))


def test_a_nan_lse_gives_nan():
    o, nan = np.ones((1, 1, 2)), np.full((1, 1), np.nan)
    for other in (0.0, EMPTY, np.inf):
        for a, b in ((nan, np.full((1, 1), other)), (np.full((1, 1), other), nan)):
            merged_o, merged_lse = merge_state(o, a, o, b)
            assert np.isnan(merged_o).all()
            assert np.isnan(merged_lse).all()


def test_nothing_overflows():
    o = np.full((1, 1, 1), 1.7e308)
    lse = np.full((1, 1), 1e308)
    merged_o, merged_lse = merge_state(o, lse, o, lse)
    assert merged_o == o
    assert merged_lse == lse
    merged_o, _ = merge_state(o, lse, -o, -lse)
    assert merged_o == o


def test_no_states_and_no_tokens():
    o, lse = merge_states(np.zeros((0, 3, 2, 4)), np.zeros((0, 2, 3)))
    np.testing.assert_array_equal(o, np.zeros((3, 2, 4)))
    np.testing.assert_array_equal(lse, np.full((2, 3), EMPTY))
    o, lse = merge_state(*[np.zeros((0, 2, 4)), np.zeros((2, 0))] * 2)
    assert (o.shape, lse.shape) == ((0, 2, 4), (2, 0))


def test_batch_dimensions_and_narrow_types():
    rng = np.random.default_rng(0)
    o = rng.normal(size=(2, 6, 5, 3, 2, 4)).astype(np.float16)
    lse = rng.normal(size=(2, 6, 5, 2, 3)).astype(np.float32)
    merged_o, merged_lse = merge_state(o[0], lse[0], o[1], lse[1])
    assert (merged_o.shape, merged_lse.shape) == (o.shape[1:], lse.shape[1:])
    assert merged_o.dtype == merged_lse.dtype == np.float64
    one_o, one_lse = merge_state(o[0, 2, 3], lse[0, 2, 3], o[1, 2, 3], lse[1, 2, 3])
    np.testing.assert_array_equal(merged_o[2, 3], one_o)
    np.testing.assert_array_equal(merged_lse[2, 3], one_lse)
    many_o, many_lse = merge_states(o, lse)
    np.testing.assert_array_equal(many_o, merged_o)
    np.testing.assert_array_equal(many_lse, merged_lse)


def test_by_hand():
    o_a, o_b = np.array([[[1.0]]]), np.array([[[5.0]]])
    lse_a, lse_b = np.array([[math.log(3)]]), np.array([[math.log(1)]])
    o, lse = merge_state(o_a, lse_a, o_b, lse_b)
    assert o[0, 0, 0] == pytest.approx(2.0)
    assert lse[0, 0] == pytest.approx(math.log(4))


def test_bad_arguments():
    o, lse = np.zeros((4, 3, 8)), np.zeros((3, 4))
    with pytest.raises(ValueError, match=r"lse_a: got shape \(4, 3\).*it fits lse_layout='th'"):
        merge_state(o, lse.T, o, lse)
    with pytest.raises(ValueError, match="lse_layout: got 'bh'; must be one of ht, th"):
        merge_state(o, lse, o, lse, lse_layout="bh")
    with pytest.raises(ValueError, match="o_b: got shape"):
        merge_state(o, lse, np.zeros((4, 3, 7)), lse)
    with pytest.raises(ValueError, match="o_a: got shape"):
        merge_state(o[0], lse, o[0], lse)
    with pytest.raises(ValueError, match="o: got shape"):
        merge_states(o, lse)
    with pytest.raises(TypeError, match="lse_b: got dtype bool"):
        merge_state(o, lse, o, lse > 0)
