import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attngen.reference.rounding import FORMATS, format_of, round_to, ulp

laws = settings(max_examples=200)
TORCH = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def edges():
    """float32 numbers around every place where rounding may go wrong."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    near = np.concatenate([ties, ties + np.uint32(1), ties - np.uint32(1), bits])
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 2.0**-25])
    with np.errstate(invalid="ignore"):
        return np.concatenate([near.view(np.float32), special.astype(np.float32)])


@pytest.mark.parametrize("dtype", FORMATS)
def test_float32_rounds_as_torch_does(dtype):
    torch = pytest.importorskip("torch")
    x = edges()
    expected = torch.from_numpy(x).to(getattr(torch, TORCH[dtype])).to(torch.float32).numpy()
    got = round_to(x, dtype)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected)
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(x[finite]))


@pytest.mark.parametrize("dtype", FORMATS)
@laws
@given(st.floats(allow_nan=False, width=64))
def test_float64_is_rounded_once_to_the_nearest(dtype, x):
    fmt = FORMATS[dtype]
    y = float(round_to(np.float64(x), dtype))
    if abs(y) == np.inf:
        assert abs(x) >= fmt.largest * (1 + fmt.unit_roundoff / 2)
        return
    assert float(round_to(y, dtype)) == y
    assert abs(x - y) <= float(ulp(x, dtype)) / 2
    assert np.signbit(y) == np.signbit(x)


def test_no_double_rounding():
    # Half way between two bf16 numbers and a hair: float32 on the way would lose the hair.
    x = 1 + 2.0**-8 + 2.0**-40
    assert round_to(x, "bf16") == 1 + 2.0**-7
    assert round_to(1 + 2.0**-8, "bf16") == 1.0
    x = 1 + 2.0**-11 + 2.0**-40
    assert round_to(x, "fp16") == 1 + 2.0**-10


def test_formats_are_numpys():
    for name, dtype in (("fp16", np.float16), ("fp32", np.float32)):
        info = np.finfo(dtype)
        assert FORMATS[name].largest == float(info.max)
        assert FORMATS[name].smallest_subnormal == float(info.smallest_subnormal)
        assert FORMATS[name].unit_roundoff == float(info.eps) / 2
    assert FORMATS["bf16"].largest == 3.3895313892515355e38
    assert FORMATS["bf16"].unit_roundoff == 2.0**-8


@pytest.mark.parametrize(("name", "dtype"), [("fp16", np.float16), ("fp32", np.float32)])
def test_ulp_is_numpys_spacing(name, dtype):
    x = np.array([0.0, 1e-8, 6e-5, 0.3, 0.5, 1.0, 1.5, 2.0, 1000.0, 60000.0], dtype)
    np.testing.assert_array_equal(ulp(x, name), np.spacing(x).astype(np.float64))
    np.testing.assert_array_equal(ulp(-x, name), ulp(x, name))


def test_shapes_and_names():
    assert round_to(np.zeros((2, 0, 3)), "bf16").shape == (2, 0, 3)
    assert round_to(np.float32(1.1), "bf16").shape == ()
    assert round_to(np.float16(1.1), "bf16").dtype == np.float32
    with pytest.raises(ValueError, match="operand_dtype: got 'bf17'; must be one of fp16, bf16"):
        format_of("bf17", "operand_dtype")
