"""The reference against torch's flex_attention, run eagerly in float64 on the CPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", minversion="2.10", reason="torch's flex_attention is the oracle")

from flex_oracle import flex
from torch.nn.attention import flex_attention

from attngen.reference import attention

# batch, seqlen_q, seqlen_kv, heads_q, heads_kv, head_dim, head_dim_v
SHAPES = {
    "more-keys": (2, 3, 11, 6, 2, 8, 4),
    "more-queries": (1, 9, 4, 3, 1, 5, 7),
}
CASES = {
    "plain": [],
    "scale": ["sm_scale"],
    "softcap": ["softcap"],
    "causal": ["causal"],
    "causal-offset": ["causal", "causal_offset"],
    "causal-offsets": ["causal", "causal_offsets"],
    "window": ["window_size"],
    "window-with-offsets": ["window_size", "causal_offsets"],
    "causal-window": ["causal", "window_size"],
    "left-window": ["causal", "left_window"],
    "right-window": ["right_window", "causal_offset"],
    "mask": ["mask"],
    "key-mask": ["key_mask"],
    "bias": ["bias"],
    "bias-of-every-head": ["head_bias"],
    "bias-with-infinities": ["masking_bias"],
    "alibi": ["alibi_slopes"],
    "alibi-of-every-sequence": ["alibi_slopes_of_batch", "causal_offsets"],
    "sinks": ["sinks"],
    "sinks-and-mask": ["sinks", "mask"],
    "softcap-before-bias": ["softcap", "bias"],
    "softcap-before-mask": ["softcap", "masking_bias", "mask"],
    "softcap-before-alibi": ["softcap", "alibi_slopes"],
    "gemma-like": ["causal", "left_window", "softcap", "sm_scale"],
    "gpt-oss-like": ["causal", "left_window", "sinks"],
    "everything": [
        *("causal", "causal_offsets", "window_size", "sm_scale", "softcap", "sinks"),
        *("alibi_slopes", "masking_bias", "mask"),
    ],
}
# For each option, the names of the values that it takes here.
CHOICES = {
    "causal": ["causal"],
    "causal_offset": ["causal_offset", "causal_offsets"],
    "window_size": ["window_size", "left_window", "right_window"],
    "sm_scale": ["sm_scale"],
    "softcap": ["softcap"],
    "sinks": ["sinks"],
    "alibi_slopes": ["alibi_slopes", "alibi_slopes_of_batch"],
    "bias": ["bias", "head_bias", "masking_bias"],
    "mask": ["mask", "key_mask"],
}
OPTION_OF = {name: option for option, names in CHOICES.items() for name in names}


@pytest.fixture(scope="module", autouse=True)
def eager():
    """Take flex_attention's formula as it stands, without a compiler's pass over it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        yield


def problem(shape, names, seed):
    """Unit-normal q, k, v and the named options with values to match."""
    batch, seqlen_q, seqlen_kv, heads_q, heads_kv, head_dim, head_dim_v = shape
    rng = np.random.default_rng(seed)
    qkv = (
        rng.normal(size=(batch, seqlen_q, heads_q, head_dim)),
        rng.normal(size=(batch, seqlen_kv, heads_kv, head_dim)),
        rng.normal(size=(batch, seqlen_kv, heads_kv, head_dim_v)),
    )
    scores = (batch, heads_q, seqlen_q, seqlen_kv)
    left, right = (int(x) for x in rng.integers(0, seqlen_kv, 2))
    values = {
        "causal": True,
        "causal_offset": int(rng.integers(-seqlen_q, seqlen_kv + 1)),
        "causal_offsets": rng.integers(-seqlen_q, seqlen_kv + 1, batch),
        "window_size": (left, right),
        "left_window": (left, -1),
        "right_window": (-1, right),
        "sm_scale": float(rng.normal()),
        "softcap": float(rng.uniform(0.3, 3.0)),
        "sinks": np.where(rng.random(heads_q) < 0.2, -np.inf, rng.normal(size=heads_q)),
        "alibi_slopes": 2.0 ** -rng.uniform(0, 8, heads_q),
        "alibi_slopes_of_batch": 2.0 ** -rng.uniform(0, 8, (batch, heads_q)),
        "bias": rng.normal(size=(seqlen_q, seqlen_kv)),
        "head_bias": rng.normal(size=(heads_q, 1, seqlen_kv)),
        "masking_bias": np.where(rng.random(scores) < 0.3, -np.inf, rng.normal(size=scores)),
        "mask": rng.random(scores) < 0.5,
        "key_mask": rng.random((batch, 1, 1, seqlen_kv)) < 0.5,
    }
    return qkv, {OPTION_OF[name]: values[name] for name in names}


@st.composite
def shapes(draw):
    batch, heads_kv, group = (draw(st.integers(1, n)) for n in (3, 3, 3))
    seqlen_q, seqlen_kv = draw(st.integers(1, 12)), draw(st.integers(1, 24))
    head_dim, head_dim_v = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    return batch, seqlen_q, seqlen_kv, heads_kv * group, heads_kv, head_dim, head_dim_v


def assert_same(qkv, options):
    o, lse = attention(*qkv, **options)
    expected_o, expected_lse = flex(*qkv, **options)
    np.testing.assert_allclose(o, expected_o, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_a_feature(case, shape):
    assert_same(*problem(SHAPES[shape], CASES[case], seed=len(case)))


@settings(max_examples=50)
@given(
    shapes(),
    st.fixed_dictionaries({}, optional={o: st.sampled_from(n) for o, n in CHOICES.items()}),
    st.integers(0, 2**32 - 1),
)
def test_any_combination_on_any_shape(shape, chosen, seed):
    assert_same(*problem(shape, list(chosen.values()), seed))
