import tracemalloc
from functools import partial

import numpy as np
import pytest
from brute_force import brute_force
from hypothesis import given, settings
from hypothesis import strategies as st

from attngen.reference import attention, merge_state, online_attention

laws = settings(max_examples=60)


@st.composite
def problems(draw):
    """Small q, k, v of any group size and lengths, with any options."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, heads_kv, group = (
        draw(st.integers(0, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 3)),
    )
    seqlen_q, seqlen_kv = draw(st.integers(0, 5)), draw(st.integers(0, 9))
    heads_q = heads_kv * group
    q = rng.normal(size=(batch, seqlen_q, heads_q, 4))
    k = rng.normal(size=(batch, seqlen_kv, heads_kv, 4))
    v = rng.normal(size=(batch, seqlen_kv, heads_kv, 3))
    scores = (batch, heads_q, seqlen_q, seqlen_kv)
    bias = rng.normal(size=scores)
    bias[rng.random(scores) < 0.2] = -np.inf
    options = {
        "causal": st.booleans(),
        "causal_offset": st.integers(-4, 9) | st.just(rng.integers(-4, 9, batch)),
        "window_size": st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
        "sm_scale": st.sampled_from([0.0, -1.0, 0.3, 5.0]),
        "softcap": st.sampled_from([0.5, 20.0]),
        "sinks": st.just(np.where(rng.random(heads_q) < 0.3, -np.inf, rng.normal(size=heads_q))),
        "alibi_slopes": st.sampled_from([rng.random(heads_q), rng.random((batch, heads_q))]),
        "bias": st.sampled_from([bias, bias[:, :1], rng.normal(size=(seqlen_q, seqlen_kv))]),
        "mask": st.sampled_from([rng.random(scores) < 0.6, rng.random((1, 1, 1, seqlen_kv)) < 0.5]),
    }
    return (q, k, v), draw(st.fixed_dictionaries({}, optional=options))


def close(a, b, **tolerance):
    tolerance = {"rtol": 1e-11, "atol": 1e-13, **tolerance}
    np.testing.assert_allclose(a[0], b[0], **tolerance)
    np.testing.assert_allclose(a[1], b[1], **tolerance)


@laws
@given(problems())
def test_attention_is_the_triple_loop(problem):
    qkv, options = problem
    close(attention(*qkv, **options), brute_force(*qkv, **options))


@laws
@given(problems(), st.integers(1, 10))
def test_online_is_two_pass(problem, block_n):
    qkv, options = problem
    close(online_attention(*qkv, block_n=block_n, **options), attention(*qkv, **options))


@laws
@given(problems(), st.floats(-50, 50))
def test_a_common_shift_of_the_scores_moves_lse_alone(problem, shift):
    qkv, options = problem
    options.pop("sinks", None)
    bias = options.pop("bias", np.zeros((1, 1, 1, 1)))
    o, lse = attention(*qkv, bias=bias, **options)
    close(attention(*qkv, bias=bias + shift, **options), (o, lse + shift), rtol=1e-9, atol=1e-11)


@laws
@given(problems())
def test_o_lies_within_the_values(problem):
    (q, k, v), options = problem
    o, lse = attention(q, k, v, **options)
    assert np.isfinite(o).all()
    assert not np.isnan(lse).any()
    if v.size:
        assert np.abs(o).max(initial=0) <= np.abs(v).max() * (1 + 1e-12)


@laws
@given(problems())
def test_a_sink_is_one_merged_state(problem):
    qkv, options = problem
    sinks = options.pop("sinks", np.zeros(qkv[0].shape[2]))
    o, lse = attention(*qkv, **options)
    sink = np.broadcast_to(sinks[:, None], lse.shape)
    close(attention(*qkv, sinks=sinks, **options), merge_state(o, lse, np.zeros_like(o), sink))


@laws
@given(problems())
def test_what_no_query_sees_may_hold_anything(problem):
    (q, k, v), options = problem
    rng = np.random.default_rng(0)
    seen = rng.random((1, 1, 1, k.shape[1])) < 0.5
    options["mask"] = seen & options.get("mask", True)
    expected = attention(q, k, v, **options)
    for junk in (np.nan, np.inf, -np.inf):
        k_junk, v_junk = k.copy(), v.copy()
        k_junk[:, ~seen[0, 0, 0]] = v_junk[:, ~seen[0, 0, 0]] = junk
        for f in (attention, online_attention):
            o, lse = f(q, k_junk, v_junk, **options)
            np.testing.assert_allclose(o, expected[0], rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(lse, expected[1], rtol=1e-11, atol=1e-13)


def normal(seqlen_q=4, seqlen_kv=6, heads_q=2, heads_kv=1, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(1, seqlen_q, heads_q, 8))
    k, v = rng.normal(size=(2, 1, seqlen_kv, heads_kv, 8))
    return q, k, v


@pytest.mark.parametrize("f", [attention, online_attention])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_visible_infinite_or_nan_score_makes_its_row_nan(f, bad):
    bias = np.zeros((4, 6))
    bias[2, 3] = bad
    o, lse = f(*normal(), bias=bias)
    assert np.isnan(o[:, 2]).all()
    assert np.isnan(lse[:, :, 2]).all()
    rest = [0, 1, 3]
    assert np.isfinite(o[:, rest]).all()
    assert np.isfinite(lse[:, :, rest]).all()
    mask = np.ones((4, 6), bool)
    mask[2, 3] = False
    assert np.isfinite(f(*normal(), bias=bias, mask=mask)[0]).all()


@pytest.mark.parametrize("f", [attention, online_attention])
def test_an_infinite_or_nan_sink_makes_its_rows_nan(f):
    for bad in (np.inf, np.nan):
        o, lse = f(*normal(), sinks=np.array([bad, 0.0]))
        assert np.isnan(o[:, :, 0]).all()
        assert np.isnan(lse[:, 0]).all()
        assert np.isfinite(o[:, :, 1]).all()


@pytest.mark.parametrize("f", [attention, online_attention])
def test_visible_infinities_in_v(f):
    q, k, v = normal()
    v[0, 1, 0, 0], v[0, 2, 0, 0], v[0, 1, 0, 1] = np.inf, -np.inf, -np.inf
    k[0, 1] = -1e4 * np.sign(q[0, :1, 0])  # its weight rounds to 0 for row 0, but is not 0
    o, _ = f(q, k, v, causal=True, causal_offset=0)
    assert np.isfinite(o[0, 0]).all()
    np.testing.assert_array_equal(o[0, 1, :, 0], np.inf)
    assert np.isnan(o[0, 2:, :, 0]).all()
    np.testing.assert_array_equal(o[0, 1:, :, 1], -np.inf)
    assert np.isfinite(o[0, :, :, 2:]).all()
    o, _ = f(q, k, v)
    assert np.isnan(o[0, 0, 0, 0])


@pytest.mark.parametrize("f", [attention, online_attention])
def test_empty_rows_and_their_sinks(f):
    q, k, v = normal()
    o, lse = f(q, k, v, mask=np.zeros((1, 1, 1, 1), bool))
    np.testing.assert_array_equal(o, np.zeros_like(o))
    np.testing.assert_array_equal(lse, np.full_like(lse, -np.inf))
    o, lse = f(q, k, v, mask=np.zeros((1, 1, 1, 1), bool), sinks=[0.1, -0.7])
    np.testing.assert_array_equal(o, np.zeros_like(o))
    np.testing.assert_array_equal(lse, np.broadcast_to([[[0.1], [-0.7]]], lse.shape))
    # Very negative is not empty.
    _, lse = f(q, k, v, bias=np.full((1, 1, 1, 1), -1e30))
    np.testing.assert_allclose(lse, -1e30)


def test_a_score_of_minus_infinity_from_any_source_is_masked():
    q, k, v = normal(seqlen_q=1)
    q, k = np.abs(q), np.abs(k)
    k[0, 0] = -np.inf
    expected = attention(q, k[:, 1:], v[:, 1:])
    close(attention(q, k, v), expected)
    # A softcap brings the infinite score back: cap * tanh(-inf) = -cap.
    assert (
        attention(q, k, v, softcap=1.0)[1] > attention(q, k[:, 1:], v[:, 1:], softcap=1.0)[1]
    ).all()


@pytest.mark.parametrize("size", [2.0**13, 2.0**26, 2.0**100])
def test_huge_scores(size):
    q = np.full((1, 1, 1, 1), size)
    k = np.array([1.0, 1.0, 0.5, -1.0]).reshape(1, 4, 1, 1)
    v = np.arange(4.0).reshape(1, 4, 1, 1)
    for f in (attention, online_attention):
        o, lse = f(q, k, v, sm_scale=1.0)
        assert o.item() == 0.5
        assert lse.item() == pytest.approx(size + np.log(2), rel=1e-15)


def test_lengths_of_zero():
    for batch, seqlen_q, seqlen_kv in [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)]:
        q, k = np.zeros((batch, seqlen_q, 2, 8)), np.zeros((batch, seqlen_kv, 1, 8))
        for f in (attention, online_attention):
            for causal in (False, True):
                o, lse = f(q, k, k[..., :5], causal=causal, sinks=None)
                assert o.shape == (batch, seqlen_q, 2, 5)
                np.testing.assert_array_equal(lse, np.full((batch, 2, seqlen_q), -np.inf))
    _, lse = attention(np.zeros((1, 3, 2, 8)), *[np.zeros((1, 0, 2, 8))] * 2, sinks=[1.0, 2.0])
    np.testing.assert_array_equal(lse, [[[1.0] * 3, [2.0] * 3]])


def test_narrow_inputs_are_taken_exactly():
    q, k, v = (x.astype(np.float16) for x in normal())
    close(attention(q, k, v), brute_force(*(x.astype(np.float64) for x in (q, k, v))))
    o, lse = attention(q.astype(np.float32), k, v.astype(np.float64))
    assert o.dtype == lse.dtype == np.float64


def test_strided_views():
    q, k, v = normal()
    wide = np.repeat(np.concatenate([k, v], axis=-1), 2, axis=1)[:, ::2]
    close(attention(q[..., ::-1], wide[..., 7::-1], wide[..., 8:]), attention(q, k, v))


BAD = [
    ({"q": np.zeros((1, 4, 5, 8)), "k": np.zeros((1, 6, 2, 8)), "v": np.zeros((1, 6, 2, 8))},
     ValueError, "heads_q: got 5; must be a multiple of heads_kv = 2"),
    ({"k": np.zeros((1, 6, 1, 7))}, ValueError, "k: got head_dim 7; must be that of q, 8"),
    ({"k": np.zeros((2, 6, 1, 8))}, ValueError, "k: got batch 2; must be that of q, 1"),
    ({"v": np.zeros((1, 5, 1, 8))}, ValueError, r"v: got \(seqlen_kv, heads_kv\) = \(5, 1\)"),
    ({"q": np.zeros((4, 2, 8))}, ValueError, r"q: got shape \(4, 2, 8\); must be \[batch, seq"),
    ({"q": np.zeros((1, 4, 2, 8), complex)}, TypeError, "q: got dtype complex128"),
    ({"v": np.zeros((1, 6, 1, 8), bool)}, TypeError, "v: got dtype bool"),
    ({"q": np.zeros((1, 4, 2, 0)), "k": np.zeros((1, 6, 1, 0))}, ValueError, "head_dim: got 0"),
    ({"causal": 1}, TypeError, "causal: got 1; must be True or False"),
    ({"causal_offset": 1.5}, TypeError, "causal_offset: got dtype float64"),
    ({"causal_offset": [1, 2]}, ValueError, r"causal_offset: got shape \(2,\); must be \[1\]"),
    ({"window_size": (-2, 0)}, ValueError, r"window_size: got \(-2, 0\); each must be -1"),
    ({"window_size": (1.0, 0)}, TypeError, "window_size: got"),
    ({"window_size": 3}, TypeError, "window_size: got 3; must be a pair"),
    ({"softcap": 0.0}, ValueError, r"softcap: got 0\.0; must be a finite number above 0"),
    ({"softcap": -1}, ValueError, "softcap: got -1; must be a finite number above 0"),
    ({"sm_scale": float("nan")}, ValueError, "sm_scale: got nan; must be a finite number"),
    ({"sm_scale": float("inf")}, ValueError, "sm_scale: got inf; must be a finite number"),
    ({"sm_scale": "1"}, TypeError, "sm_scale: got '1'; must be a finite number"),
    ({"sinks": np.zeros(3)}, ValueError, r"sinks: got shape \(3,\); must be \[heads_q\] = \[2\]"),
    ({"alibi_slopes": np.zeros((2, 2))}, ValueError, r"alibi_slopes: got shape \(2, 2\)"),
    ({"bias": np.zeros((4, 5))}, ValueError, r"bias: got shape \(4, 5\); must broadcast to"),
    ({"bias": np.ones((4, 6), bool)}, TypeError, "bias: got dtype bool"),
    ({"mask": np.ones((4, 6))}, TypeError, "mask: got dtype float64; must be bool, True = visible"),
    ({"mask": np.ones((3, 6), bool)}, ValueError, r"mask: got shape \(3, 6\); must broadcast to"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_arguments(change, error, message):
    q, k, v = normal()
    arguments = {"q": q, "k": k, "v": v, **change}
    for f in (attention, online_attention):
        with pytest.raises(error, match=message):
            f(**arguments)


def test_unknown_options_and_blocks():
    with pytest.raises(TypeError, match="windows"):
        attention(*normal(), windows=(1, 1))
    with pytest.raises(ValueError, match="block_n: got 0; must be 1 or more"):
        online_attention(*normal(), block_n=0)


@pytest.mark.parametrize("f", [attention, partial(online_attention, block_n=512)])
def test_memory_is_one_block_of_one_head(f):
    # 8192 keys, 32 heads: all scores would be 32 GiB per 8192 queries; a row block of one is 8 MiB.
    rng = np.random.default_rng(0)
    q = rng.normal(size=(1, 140, 32, 4)).astype(np.float32)
    k, v = rng.normal(size=(2, 1, 8192, 8, 4)).astype(np.float32)
    tracemalloc.start()
    f(q, k, v, causal=True, window_size=(4096, -1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20


@pytest.mark.slow
def test_8192_tokens_and_32_heads():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(1, 8192, 32, 8)).astype(np.float32)
    k, v = rng.normal(size=(2, 1, 8192, 8, 8)).astype(np.float32)
    last = 1024  # the last eighth of the queries is enough to see what is held at once
    tracemalloc.start()
    o, lse = attention(q[:, -last:], k, v, causal=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < o.nbytes + lse.nbytes + 64 * 2**20
    expected = brute_force(q[:, -1:, 4:5], k[:, :, 1:2], v[:, :, 1:2])
    np.testing.assert_allclose(o[:, -1:, 4:5], expected[0], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(lse[:, 4:5, -1:], expected[1], rtol=1e-11, atol=1e-13)
    first = attention(q[:, -last : 1 - last], k[:, : 1 - last], v[:, : 1 - last])
    np.testing.assert_allclose(o[:, :1], first[0], rtol=1e-11, atol=1e-13)
