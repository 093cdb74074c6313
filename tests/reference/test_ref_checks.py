import numpy as np
import pytest
from simulated_kernel import Simulation, simulate

from attngen.reference import attention, error_budget
from attngen.reference.checks import RMS_ROWS, compare, plain_attention
from attngen.reference.rounding import round_to, ulp

BLOCK_N = 32
ROWS = 40  # twice for the batch: enough for the check of heads


def normal(operand, keys=200):
    rng = np.random.default_rng(1)
    return tuple(
        round_to(rng.normal(size=(2, n, 2, 32)).astype(np.float32), operand)
        for n in (ROWS, keys, keys)
    )


def verdict(operand, o, lse, qkv, out=None, **attn):
    """All checks of an o and lse against the reference."""
    out = out or operand
    bounds = error_budget(*qkv, operand_dtype=operand, out_dtype=out, block_n=BLOCK_N, **attn)
    plain = plain_attention(*qkv, operand_dtype=operand, out_dtype=out, **attn)
    return compare(o, lse, *attention(*qkv, **attn), *bounds, plain, out_dtype=out)


def right(operand, qkv, **attn):
    return simulate(*qkv, Simulation(operand, operand, block_n=BLOCK_N, chunk=8), **attn)


def test_a_right_kernel_passes_and_the_verdict_says_by_how_much():
    qkv = normal("bf16")
    found = verdict("bf16", *right("bf16", qkv), qkv)
    assert found.passed
    assert found.failures == ()
    assert 0 < found.ratio < 1
    assert found.ratio == max(found.o.ratio, found.lse.ratio)
    assert 0 < found.row_ratio < 1
    assert 0.5 < found.rms_ratio < 1
    assert len(found.o.index) == 4
    assert len(found.lse.index) == 3
    assert abs(found.o.got - found.o.expected) == pytest.approx(found.o.ratio * found.o.budget)


def test_the_worst_element_is_named():
    qkv = normal("fp16")
    o, lse = right("fp16", qkv)
    o[1, 2, 0, 3] += 1.0
    lse[0, 1, 5] = -3.0
    found = verdict("fp16", o, lse, qkv)
    assert found.o.index == (1, 2, 0, 3)
    assert found.lse.index == (0, 1, 5)
    assert not found.passed
    text = "\n".join(found.failures)
    assert "hard: 1 of 5120 elements of o beyond the budget, worst [1, 2, 0, 3] got" in text
    assert "of lse beyond the budget, worst [0, 1, 5] got -3, expected" in text
    assert "sharp: row [1, 2, 0]" in text


def shifted_lse(o, lse):
    return o, lse / np.log(2)


def nothing_written(o, lse):
    o = o.copy()
    o[1, 3, 1] = np.nan
    return o, lse


def zeros(o, lse):
    return np.zeros_like(o), lse


def infinite(o, lse):
    o = o.copy()
    o[0, 0, 0, 0] = np.inf
    return o, lse


def empty_row(o, lse):
    lse = lse.copy()
    lse[0, 0, 0] = -np.inf
    return o, lse


def swapped_heads(o, lse):
    return o[:, :, ::-1], lse


def off_by_one_key(o, lse):
    return o, lse + np.log(201 / 200).astype(np.float32)


@pytest.mark.parametrize("operand", ["fp16", "bf16"])
@pytest.mark.parametrize(
    "fault",
    [shifted_lse, nothing_written, zeros, infinite, empty_row, swapped_heads, off_by_one_key],
)
def test_faults_of_the_output_fail(operand, fault):
    qkv = normal(operand)
    o, lse = fault(*right(operand, qkv))
    found = verdict(operand, o, lse, qkv)
    assert not found.passed
    assert any(words.startswith("hard") for words in found.failures)


def test_what_hides_in_the_budget_fails_the_sharp_check():
    # Rounding the output twice, by way of bf16, stays within a bf16 budget but is not as exact as
    # an fp32 output can be.
    qkv = normal("bf16")
    o, lse = simulate(*qkv, Simulation("bf16", "fp32", block_n=BLOCK_N))
    found = verdict("bf16", round_to(o, "bf16"), lse, qkv, out="fp32")
    assert found.o.ratio < 1
    assert [words[:11] for words in found.failures] == ["sharp: head"] * 2
    # One row that is a little off: too little for the budget and for the head as a whole.
    o, lse = right("bf16", qkv)
    o[0, 0, 0, 0] += 3 * ulp(np.abs(o[0, 0, 0]).max(), "bf16")
    found = verdict("bf16", o, lse, qkv)
    assert found.o.ratio < 1
    assert found.row_ratio > 1
    assert found.failures[0].startswith("sharp: row [0, 0, 0] of o has an error of")


def test_a_narrow_accumulator_fails():
    qkv = normal("fp16", keys=1000)
    q, k, v = (x.astype(np.float64) for x in qkv)
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(32)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    acc = np.zeros((2, 2, ROWS, 32))
    for j in range(1000):
        acc = round_to(acc + p[..., j, None] * v.transpose(0, 2, 1, 3)[:, :, None, j], "fp16")
    o = round_to((acc / p.sum(axis=-1)[..., None]).transpose(0, 2, 1, 3), "fp16")
    found = verdict("fp16", o, attention(*qkv)[1], qkv)
    assert any(words.startswith("sharp") for words in found.failures)


def test_infinities_and_nans_have_to_be_the_same():
    ref = np.array([[1.0, np.inf], [np.nan, -np.inf]])
    lse = np.array([0.0, -np.inf])
    bounds = np.full((2, 2), 0.1), np.full(2, 0.1)
    same = compare(ref, lse, ref, lse, *bounds, out_dtype="fp32")
    assert same.passed
    assert same.ratio == 0
    for place in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        for value in (np.inf, -np.inf, np.nan, 7.0):
            got = ref.copy()
            got[place] = value
            found = compare(got, lse, ref, lse, *bounds, out_dtype="fp32")
            assert found.passed == np.array_equal(got, ref, equal_nan=True)
            if not found.passed and not (np.isfinite(value) and place == (0, 0)):
                assert found.o.ratio == np.inf
                assert found.o.index == place


def test_a_budget_of_zero_asks_for_equality():
    o, lse, zero = np.zeros((1, 2)), np.zeros(1), np.zeros((1, 2))
    assert compare(-o, lse, o, lse, zero, np.zeros(1), out_dtype="fp32").passed
    tiny = np.array([[0.0, 1e-45]], np.float32)
    found = compare(tiny, lse, o, lse, zero, np.zeros(1), out_dtype="fp32")
    assert found.o.ratio == np.inf
    assert found.o.index == (0, 1)


def test_exact_inputs_pass_although_plain_has_no_error_at_all():
    for operand in ("fp16", "bf16", "fp32"):
        q, k, v = np.zeros((1, 70, 1, 32)), np.zeros((1, 17, 1, 32)), np.ones((1, 17, 1, 32))
        how = Simulation(operand, "fp32", block_n=BLOCK_N, chunk=0 if operand == "fp32" else 8)
        assert (plain_attention(q, k, v, operand_dtype=operand, out_dtype="fp32") == 1).all()
        found = verdict(operand, *simulate(q, k, v, how), (q, k, v), out="fp32")
        assert found.passed, found.failures


@pytest.mark.parametrize("operand", ["fp16", "bf16", "fp32"])
def test_plain_is_what_it_says(operand):
    q, k, v = (x[:1, :, :1] for x in normal(operand))
    s = (q[0, :, 0] @ k[0, :, 0].T) * np.float32(1 / np.sqrt(32))
    p = np.exp(s - s.max(axis=1, keepdims=True))
    o = (round_to(p, operand).astype(np.float64) @ v[0, :, 0]) / p.sum(axis=1, keepdims=True)
    got = plain_attention(q, k, v, operand_dtype=operand, out_dtype="fp32")
    np.testing.assert_allclose(got[0, :, 0], o, rtol=1e-5, atol=1e-6)
    narrow = plain_attention(q, k, v, operand_dtype=operand)
    np.testing.assert_array_equal(narrow, round_to(narrow, operand))
    np.testing.assert_array_equal(narrow, round_to(got, operand))


def test_plain_has_every_option_and_empty_rows():
    q, k, v = normal("fp32", keys=20)
    mask = np.ones((ROWS, 20), bool)
    mask[3] = False
    attn = {
        "mask": mask,
        "causal": True,
        "window_size": (7, -1),
        "softcap": 2.0,
        "alibi_slopes": np.array([0.1, 0.2]),
        "bias": np.linspace(-1, 1, 20),
        "sinks": np.array([0.5, -np.inf]),
        "sm_scale": -0.4,
    }
    got = plain_attention(q, k, v, operand_dtype="fp32", **attn)
    np.testing.assert_allclose(got, attention(q, k, v, **attn)[0], atol=2e-6)
    assert (got[:, 3] == 0).all()


def test_few_rows_are_too_few_for_the_check_of_heads():
    o, lse = np.ones((RMS_ROWS, 2, 4)), np.zeros((2, RMS_ROWS))
    assert compare(o, lse, o, lse, o, lse, o, out_dtype="fp16").rms_ratio == 0
    o, lse = o[1:], lse[:, 1:]
    found = compare(o, lse, o, lse, o, lse, o, out_dtype="fp16")
    assert found.rms_ratio is None
    assert found.row_ratio == 0


def test_packed_shapes_and_no_elements():
    o, lse = np.ones((5, 2, 4)), np.zeros((2, 5))
    assert compare(o, lse, o, lse, o, lse, o, out_dtype="fp16").passed
    o, lse = np.ones((0, 2, 4)), np.zeros((2, 0))
    found = compare(o, lse, o, lse, o, lse, o, out_dtype="fp16")
    assert found.passed
    assert found.o.index == ()


def test_bad_arguments():
    o, lse = np.ones((5, 2, 4)), np.zeros((2, 5))
    with pytest.raises(ValueError, match=r"o: got shape \(4, 2, 4\); must be \(5, 2, 4\)"):
        compare(o[:4], lse, o, lse, o, lse, out_dtype="fp16")
    with pytest.raises(ValueError, match="lse: got shape"):
        compare(o, lse, o, lse, o, lse[:1], out_dtype="fp16")
    with pytest.raises(ValueError, match="out_dtype: got 'half'"):
        compare(o, lse, o, lse, o, lse, out_dtype="half")
    with pytest.raises(ValueError, match="operand_dtype: got 'half'"):
        plain_attention(*normal("fp16"), operand_dtype="half")
