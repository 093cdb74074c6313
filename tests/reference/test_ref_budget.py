import numpy as np
import pytest
from looseness_table import CASES, measure, row, rows_of_page
from simulated_kernel import Simulation, simulate

from attngen.reference import attention, error_budget, statistical_budget
from attngen.reference.arithmetic import arithmetic
from attngen.reference.checks import compare, plain_attention
from attngen.reference.rounding import round_to

ROWS, KEYS, HEAD_DIM, HEAD_DIM_V = 8, 301, 64, 24


def family(name):
    """Inputs (q, k, v) and options that are hard on a kernel in one way."""
    rng = np.random.default_rng(3)
    q = rng.normal(size=(1, ROWS, 2, HEAD_DIM))
    k = rng.normal(size=(1, KEYS, 1, HEAD_DIM))
    v = rng.normal(size=(1, KEYS, 1, HEAD_DIM_V))
    options = {}
    match name:
        case "scale 10":
            q, k, v = 10 * q, 10 * k, 10 * v
        case "scale 0.1":
            q, k, v = 0.1 * q, 0.1 * k, 0.1 * v
        case "equal scores":
            q, k = np.ones_like(q), np.ones_like(k)
        case "positive values":
            v = np.abs(v) + 1
        case "all positive":
            q, k, v = np.abs(q), np.abs(k), np.abs(v) + 1
        case "rising":
            q = np.abs(q)
            k = 0.01 * k + np.linspace(0, 8, KEYS)[:, None, None]
        case "late outlier":
            k[0, KEYS - 5] = 5 * q[0, 0, 0]
        case "late outlier without value":
            k[0, KEYS - 5], v[0, KEYS - 5] = 5 * q[0, 0, 0], 0
        case "bias":
            bias = rng.normal(size=(1, 1, ROWS, KEYS))
            bias[rng.random(bias.shape) < 0.5] = -np.inf
            options["bias"] = bias.astype(np.float32)
        case "causal":
            options |= {"causal": True, "causal_offset": 1}
        case "window":
            options["window_size"] = (50, 3)
        case "softcap":
            options["softcap"] = 5.0
            q = 3 * q
        case "softcap 50":
            options["softcap"] = 50.0
            q, k = 10 * q, 10 * k
        case "alibi":
            options["alibi_slopes"] = np.array([0.5, 0.01], np.float32)
        case "sinks":
            options["sinks"] = np.array([3, -np.inf], np.float32)
        case "large sinks":
            options["sinks"] = np.array([50, 9], np.float32)
        case "negative scale":
            options["sm_scale"] = -0.3
        case "scale 0":
            options["sm_scale"] = 0.0
        case "huge":
            q, k = 300 * q, 300 * k
    return (q, k, v), options


FAMILIES = [
    "unit normal", "scale 10", "scale 0.1", "equal scores", "positive values", "all positive",
    "rising", "late outlier", "late outlier without value", "bias", "causal", "window", "softcap",
    "softcap 50", "alibi", "sinks", "large sinks", "negative scale", "scale 0", "huge",
]  # fmt: skip

# (products at once, guard bits, P V goes on in acc, splits, BLOCK_N, scale in the exponent)
KERNELS = {
    "hopper": (16, 1, True, 1, 64, True),
    "ampere": (8, 1, False, 3, 32, False),
    "coarse": (1, 0, True, 1, 128, True),
}


@pytest.mark.parametrize("operand", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", FAMILIES)
def test_no_right_kernel_leaves_the_budget(operand, kernel, name):
    arrays, options = family(name)
    q, k, v = (round_to(x.astype(np.float32), operand) for x in arrays)
    chunk, guard, chained, num_splits, block_n, raw = KERNELS[kernel]
    out = "fp32" if kernel == "coarse" else operand
    how = Simulation(
        operand, out, block_n, num_splits, 0 if operand == "fp32" else chunk, guard, chained, raw
    )
    bounds = error_budget(
        q, k, v, operand_dtype=operand, out_dtype=out, block_n=block_n, num_splits=num_splits,
        **options,
    )  # fmt: skip
    plain = plain_attention(q, k, v, operand_dtype=operand, out_dtype=out, **options)
    o, lse = simulate(q, k, v, how, **options)
    verdict = compare(o, lse, *attention(q, k, v, **options), *bounds, plain, out_dtype=out)
    assert verdict.passed, verdict.failures
    if operand == "fp32" and name != "equal scores":
        bounds = statistical_budget(
            q, k, v, out_dtype=out, block_n=block_n, num_splits=num_splits, **options
        )
        verdict = compare(o, lse, *attention(q, k, v, **options), *bounds, out_dtype=out)
        assert verdict.passed, verdict.failures


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.operand}-{c.out}-{c.block_n}-{c.bound}")
def test_the_table_in_the_documentation(case):
    o, lse = measure(case)
    if case.limit is not None:
        assert o <= case.limit
    cells = rows_of_page()[CASES.index(case)].split("|")
    expected = row(case, o, lse).split("|")
    assert cells[1:5] == expected[1:5]
    assert cells[7] == expected[7]
    for got, measured in ((cells[5], o), (cells[6], lse)):
        assert float(got) == pytest.approx(measured, rel=0.1)


def test_the_roundings_of_a_sum_are_counted_by_blocks():
    for keys, block_n, blocks in [(8192, 64, 128), (8193, 64, 129), (1, 128, 1), (0, 64, 0)]:
        rules = arithmetic("fp32", None, 128, keys, block_n, 1)
        assert rules.acc_error == pytest.approx((block_n + 2 * blocks) * 2**-24)
        assert rules.l_error == (block_n + 2 * blocks) * 2**-24
        rules = arithmetic("bf16", None, 128, keys, block_n, 1)
        assert rules.acc_error == (block_n + blocks) * 2**-22 + blocks * 2**-24
    assert arithmetic("fp16", "bf16", 128, 1, 1, 1).out.name == "bf16"


def normal(operand, keys=100, rows=4):
    rng = np.random.default_rng(0)
    return tuple(
        round_to(rng.normal(size=(1, n, 2, 32)).astype(np.float32), operand)
        for n in (rows, keys, keys)
    )


def test_every_parameter_widens_the_bound():
    q, k, v = normal("fp16")

    def largest(**changes):
        options = {"operand_dtype": "fp16", "block_n": 64, **changes}
        return np.array([x.max() for x in error_budget(q, k, v, **options)])

    base = largest()
    assert (largest(num_splits=4) > base).all()
    assert (largest(block_n=16, num_splits=1) != base).all()
    assert largest(operand_dtype="bf16")[0] > 4 * base[0]
    assert largest(operand_dtype="fp32")[0] < base[0] / 10
    assert largest(out_dtype="bf16")[0] > base[0] > largest(out_dtype="fp32")[0]


def test_the_score_error_scales_with_the_sum_of_absolute_products():
    q, k, v = normal("fp16")
    q = q - q.mean(axis=-1, keepdims=True)
    _, small = error_budget(q, k, v, operand_dtype="fp16", block_n=64)
    # A large common part of k cancels in q . k, but not in sum |q k|.
    _, large = error_budget(q, k + 1000, v, operand_dtype="fp16", block_n=64)
    assert (large > 100 * small).all()


@pytest.mark.parametrize("budget", [error_budget, statistical_budget])
def test_empty_and_nan_rows_have_no_budget(budget):
    q, k, v = normal("fp32")
    q[0, 1, 0] = np.nan
    mask = np.ones((4, 100), bool)
    mask[2] = False
    o, lse = budget(q, k, v, operand_dtype="fp32", block_n=64, mask=mask)
    assert (o[0, 2] == 0).all()
    assert (lse[0, :, 2] == 0).all()
    assert (o[0, 1, 0] == 0).all()
    assert lse[0, 0, 1] == 0
    assert (o[0, [0, 3]] > 0).all()
    assert np.isfinite(o).all()
    # With a sink an empty row's lse is the sink, through base 2 and back.
    o, lse = budget(q, k, v, operand_dtype="fp32", block_n=64, mask=mask, sinks=[3.0, 3.0])
    assert (o[0, 2] == 0).all()
    assert (lse[0, :, 2] > 0).all()
    assert (lse[0, :, 2] < 1e-5).all()


@pytest.mark.parametrize("budget", [error_budget, statistical_budget])
def test_what_is_masked_does_not_widen_it(budget):
    q, k, v = normal("fp32")
    seen = np.arange(100) < 60
    expected = budget(q, k, v, operand_dtype="fp32", block_n=64, mask=seen)
    k[:, ~seen], v[:, ~seen] = np.nan, np.inf
    got = budget(q, k, v, operand_dtype="fp32", block_n=64, mask=seen)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


def test_a_dominant_sink_leaves_a_budget_for_what_is_left():
    q, k, v = normal("fp32")
    o, _ = error_budget(q, k, v, operand_dtype="fp32", block_n=64, sinks=[60.0, 60.0])
    assert (o > 0).all()
    assert (o < 1e-20).all()


def test_beyond_float32_the_budget_stays_finite():
    q, k, v = normal("fp32")
    o, lse = error_budget(1e4 * q, 1e4 * k, v, operand_dtype="fp16", block_n=64)
    assert np.isfinite(o).all()
    assert (o <= 4 * np.abs(v).max()).all()
    assert np.isfinite(lse).all()


def test_lengths_of_zero():
    for batch, rows, keys in [(0, 2, 3), (1, 0, 3), (1, 2, 0)]:
        q, k = np.zeros((batch, rows, 2, 8)), np.zeros((batch, keys, 1, 8))
        o, lse = error_budget(q, k, k, operand_dtype="fp16", block_n=64)
        assert (o.shape, lse.shape) == ((batch, rows, 2, 8), (batch, 2, rows))
        assert not o.any()
        assert not lse.any()


def test_bad_arguments():
    q, k, v = normal("fp16")
    with pytest.raises(ValueError, match="operand_dtype: got 'float16'; must be one of fp16"):
        error_budget(q, k, v, operand_dtype="float16", block_n=64)
    with pytest.raises(ValueError, match="out_dtype: got 'fp8'"):
        error_budget(q, k, v, operand_dtype="fp16", out_dtype="fp8", block_n=64)
    with pytest.raises(ValueError, match="block_n: got 0"):
        error_budget(q, k, v, operand_dtype="fp16", block_n=0)
    with pytest.raises(ValueError, match="num_splits: got -1"):
        error_budget(q, k, v, operand_dtype="fp16", block_n=64, num_splits=-1)
    with pytest.raises(ValueError, match="operand_dtype: got 'fp16'; must be fp32"):
        statistical_budget(q, k, v, operand_dtype="fp16", block_n=64)
