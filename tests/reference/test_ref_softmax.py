import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attngen.reference import logsumexp, naive_softmax, online_softmax, safe_softmax

laws = settings(max_examples=60)
logits = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
    elements=st.floats(-1e4, 1e4) | st.just(-np.inf),
)


def brute(row):
    """Softmax and logsumexp of one row of Python floats."""
    top = max(row, default=-math.inf)
    if top == -math.inf:
        return [0.0] * len(row), -math.inf
    weights = [math.exp(x - top) for x in row]
    total = math.fsum(weights)
    return [w / total for w in weights], top + math.log(total)


@laws
@given(logits, st.integers(1, 10))
def test_safe_and_online_are_softmax(x, block):
    expected = np.zeros_like(x)
    lse = np.zeros(x.shape[:-1])
    for index in np.ndindex(x.shape[:-1]):
        expected[index], lse[index] = brute(x[index].tolist())
    np.testing.assert_allclose(safe_softmax(x), expected, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(online_softmax(x, block), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(logsumexp(x), lse, rtol=1e-13)


@laws
@given(logits, st.floats(-1e3, 1e3))
def test_a_common_shift_changes_nothing(x, shift):
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_allclose(softmax(x + shift), softmax(x), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(logsumexp(x + shift), logsumexp(x) + shift, rtol=1e-12, atol=1e-11)


@laws
@given(logits)
def test_a_row_sums_to_one_or_is_empty(x):
    total = online_softmax(x).sum(axis=-1)
    seen = (x > -np.inf).any(axis=-1)
    np.testing.assert_allclose(total, np.where(seen, 1.0, 0.0), rtol=1e-13)


@laws
@given(hnp.arrays(np.float64, (3, 8), elements=st.floats(-30, 30)))
def test_naive_agrees_where_nothing_overflows(x):
    np.testing.assert_allclose(naive_softmax(x), safe_softmax(x), rtol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "alive", "dead"),
    [(np.float16, 11.08, 11.10), (np.float32, 88.7, 88.8), (np.float64, 709.7, 709.8)],
)
def test_naive_dies_where_exp_overflows(dtype, alive, dead):
    assert math.log(float(np.finfo(dtype).max)) == pytest.approx(dead, abs=0.1)
    good = naive_softmax(np.array([alive, 0.0, 1.0], dtype))
    assert np.isfinite(good).all()
    bad = naive_softmax(np.array([dead, 0.0, 1.0, dead], dtype))
    assert np.isnan(bad[[0, 3]]).all()
    assert (bad[[1, 2]] == 0.0).all()
    for softmax in (safe_softmax, online_softmax):
        kept = softmax(np.array([dead, 0.0, 1.0, dead], dtype))
        assert kept.dtype == dtype
        np.testing.assert_allclose(kept.astype(np.float64), [0.5, 0, 0, 0.5], atol=1e-4)


def test_the_thresholds():
    assert math.log(65504) == pytest.approx(11.09, abs=0.005)
    assert math.log(float(np.finfo(np.float32).max)) == pytest.approx(88.72, abs=0.005)
    # Half of the smallest subnormal float16, 2^-25: what is below rounds to 0.
    assert math.log(2.0**-25) == pytest.approx(-17.33, abs=0.005)


def test_exp_rounds_to_zero_in_float16_below_minus_17_33():
    # numpy's float16 exp goes through float32 and rounds once.
    assert np.exp(np.float16(-17.31)) > 0
    with np.errstate(under="ignore"):
        assert np.exp(np.float16(-17.34)) == 0
    low = np.full(4, -17.5, np.float16)
    assert np.isnan(naive_softmax(low)).all()
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_array_equal(softmax(low), np.full(4, 0.25, np.float16))


def test_the_largest_of_8192_normal_logits_stands_close_to_the_threshold():
    # 3.7: exceeded once on average at 3.67, mean of the maximum 3.80. That is a third of what
    # float16 can take, so that logits with a standard deviation of 3 already die.
    x = np.linspace(-10, 10, 200_001)
    above = np.array([0.5 * math.erfc(t / math.sqrt(2)) for t in x])
    once = float(x[np.argmin(np.abs(8192 * above - 1))])
    cdf = (1 - above) ** 8192
    mean = float(np.sum(0.5 * (x[1:] + x[:-1]) * np.diff(cdf)))
    assert once == pytest.approx(3.67, abs=0.01)
    assert mean == pytest.approx(3.80, abs=0.01)
    assert mean < 11.09 < 3 * mean
    drawn = np.random.default_rng(0).normal(size=(200, 8192)).max(axis=1).mean()
    assert drawn == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize("softmax", [safe_softmax, online_softmax])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_an_infinite_or_nan_logit_makes_its_row_nan(softmax, bad, place):
    x = np.zeros((2, 7))
    x[0, place] = bad
    y = softmax(x) if softmax is safe_softmax else softmax(x, 2)
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1], 1 / 7)
    assert np.isnan(logsumexp(x)[0])


def test_empty_rows():
    x = np.full((2, 5), -np.inf)
    for softmax in (safe_softmax, online_softmax):
        np.testing.assert_array_equal(softmax(x), np.zeros((2, 5)))
        assert softmax(np.zeros((3, 0))).shape == (3, 0)
        assert softmax(np.zeros((0, 4))).shape == (0, 4)
    np.testing.assert_array_equal(logsumexp(x), [-np.inf, -np.inf])
    np.testing.assert_array_equal(logsumexp(np.zeros((3, 0))), [-np.inf] * 3)
    assert np.isnan(naive_softmax(x)).all()


def test_types_are_kept_and_integers_become_float64():
    for dtype in (np.float16, np.float32, np.float64):
        for f in (naive_softmax, safe_softmax, online_softmax, logsumexp):
            assert f(np.zeros((2, 3), dtype)).dtype == dtype
    assert safe_softmax(np.arange(3)).dtype == np.float64


def test_bad_arguments():
    with pytest.raises(TypeError, match="x: got dtype complex"):
        safe_softmax(np.zeros(3, complex))
    with pytest.raises(ValueError, match="x: got a single number"):
        online_softmax(1.0)
    with pytest.raises(ValueError, match="block: got 0; must be 1 or more"):
        online_softmax(np.zeros(3), 0)
    with pytest.raises(TypeError, match=r"block: got 2\.5"):
        online_softmax(np.zeros(3), 2.5)
