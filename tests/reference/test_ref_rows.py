"""Logits, log-softmax, top-k and the error budget of row softmax."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from row_looseness_table import CASES, measure, row, rows_of_page

from attngen.reference import (
    log_softmax,
    logits,
    logsumexp,
    safe_softmax,
    softmax_budget,
    softmax_topk,
)
from attngen.reference.softmax_budget import plain_softmax

laws = settings(max_examples=60)
entries = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
    elements=st.floats(-1e3, 1e3) | st.just(-np.inf),
)


@laws
@given(entries)
def test_log_softmax_is_the_logarithm(x):
    with np.errstate(divide="ignore"):
        expected = np.log(safe_softmax(x))
    got = log_softmax(x)
    near = got > -600.0  # below, softmax itself is subnormal or 0
    np.testing.assert_allclose(got[near], expected[near], rtol=1e-12, atol=1e-12)
    assert (got[~near] <= -600.0).all()


def test_log_softmax_does_not_underflow():
    np.testing.assert_array_equal(log_softmax([0.0, -2e4]), [0.0, -2e4])
    assert np.isnan(log_softmax([np.inf, 0.0])).all()
    np.testing.assert_array_equal(log_softmax([-np.inf, -np.inf]), [-np.inf, -np.inf])
    assert log_softmax(np.zeros((3, 0), np.float32)).dtype == np.float32


def test_logits_are_scaled_and_masked():
    x = np.array([1.0, -np.inf, np.inf, np.nan, 4.0])
    mask = np.array([True, True, False, False, True])
    for scale in (3.0, 0.0, -3.0):
        got = logits(x, mask=mask, scale=scale, temperature=2.0)
        np.testing.assert_array_equal(got, [scale / 2, -np.inf, -np.inf, -np.inf, scale * 2])
        # +inf does not become -inf, which would hide it.
        assert np.isnan(logits(x, scale=scale)[[2, 3]]).all()
    assert logits(np.zeros(3, np.float16), scale=2.0).dtype == np.float16


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"mask": [1, 0]}, TypeError, "mask: got dtype int64; must be bool"),
        ({"mask": np.ones(3, bool)}, ValueError, r"mask: got shape \(3,\); must broadcast"),
        ({"scale": np.nan}, ValueError, "scale: got nan"),
        ({"temperature": 0.0}, ValueError, r"temperature: got 0\.0"),
        ({"temperature": -1.0}, ValueError, r"temperature: got -1\.0"),
    ],
)
def test_wrong_options_are_refused(options, error, told):
    with pytest.raises(error, match=told):
        logits(np.zeros(2), **options)


def brute_topk(values, k):
    """Largest first, the lower index first among equals, by sorting pairs."""
    ranked = sorted((-v, i) for i, v in enumerate(values) if v > -math.inf)
    ranked = ranked[:k] + [(math.inf, -1)] * max(0, k - len(ranked))
    return [-v for v, _ in ranked], [i for _, i in ranked]


@laws
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(0, 4), st.integers(0, 9)),
        elements=st.integers(-3, 3).map(float) | st.just(-np.inf),
    ),
    st.integers(1, 12),
)
def test_topk_by_sorting(x, k):
    values, indices, p = softmax_topk(x, k)
    for i, line in enumerate(x.tolist()):
        expected, at = brute_topk(line, k)
        assert values[i].tolist() == expected and indices[i].tolist() == at
        whole = safe_softmax(x[i])
        np.testing.assert_array_equal(p[i], [whole[j] if j >= 0 else 0.0 for j in at])


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_topk_of_a_broken_row_says_nothing(bad):
    values, indices, p = softmax_topk([[1.0, bad, 2.0], [1.0, 0.0, 2.0]], 4)
    assert np.isnan(values[0]).all() and np.isnan(p[0]).all() and (indices[0] == -1).all()
    assert values[1].tolist() == [2.0, 1.0, 0.0, -np.inf] and indices[1].tolist() == [2, 0, 1, -1]


def test_topk_refuses_a_wrong_k():
    with pytest.raises(ValueError, match="k: got 0; must be 1 or more"):
        softmax_topk(np.zeros(3), 0)
    with pytest.raises(TypeError, match=r"k: got 1\.5"):
        softmax_topk(np.zeros(3), 1.5)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("out_dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, -3.0])
def test_plain_softmax_is_within_the_budget(out_dtype, log, scale):
    x = np.random.default_rng(1).normal(size=(16, 777)).astype(np.float32).astype(np.float64)
    options = {"scale": scale, "mask": np.arange(777) % 5 > 0}
    s = logits(x, **options)
    expected = (log_softmax if log else safe_softmax)(s)
    bound, lse_bound = softmax_budget(x, out_dtype=out_dtype, log=log, additions=64, **options)
    plain = plain_softmax(x, out_dtype=out_dtype, log=log, **options)
    seen = np.isfinite(expected)
    assert (np.abs(plain[seen] - expected[seen]) <= bound[seen]).all()
    assert (lse_bound > 0).all() and (lse_bound < 1e-4).all()


def test_rows_that_have_to_match_exactly_have_no_budget():
    x = np.array([[-np.inf] * 3, [np.nan, 0.0, 1.0], [np.inf, 0.0, 1.0], [0.0, -np.inf, 1.0]])
    y, lse = softmax_budget(x, out_dtype="fp32", additions=3)
    assert (y[:3] == 0).all() and (lse[:3] == 0).all() and (y[3] > 0).all() and lse[3] > 0
    y, _ = softmax_budget(x, out_dtype="fp32", additions=3, log=True)
    assert y[3, 1] == 0 and (y[3, [0, 2]] > 0).all()


def test_a_lost_bit_of_the_sum_is_beyond_the_budget():
    """A sum in bfloat16, or without its last entry, is seen in lse and in a float32 y."""
    x = np.random.default_rng(2).normal(size=(8, 300))
    y, lse = safe_softmax(x), logsumexp(x)
    y_bound, lse_bound = softmax_budget(x, out_dtype="fp32", additions=80, rescales=4)
    assert (np.abs(y * 2.0**-12) > y_bound).mean() > 0.9
    assert (np.abs(logsumexp(x[:, :-1]) - lse) > lse_bound).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_budget_of_rows_is_as_loose_as_the_page_says(case):
    looseness = measure(*case)
    assert all(1.0 <= x <= 20 for x in looseness)
    cells = rows_of_page()[CASES.index(case)].split("|")
    assert cells[1:4] == row(*case).split("|")[1:4]
    for got, measured in zip(cells[4:6], looseness, strict=True):
        assert float(got) == pytest.approx(measured, rel=0.1), (
            "mend with: python tests/reference/row_looseness_table.py"
        )
