"""The floating-point formats of the kernels, and rounding to them.

A format is named by the string that attngen uses everywhere: ``"fp16"``, ``"bf16"``, ``"fp32"``.
numpy has no bfloat16: a bf16 array here is a float32 or float64 array that holds bf16 values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """One binary floating-point format.

    Attributes:
        name: ``"fp16"``, ``"bf16"`` or ``"fp32"``.
        precision: Bits of the significand, the hidden one included.
        min_exponent: Exponent of the smallest normal number, 2**min_exponent.
        max_exponent: Exponent of the largest finite numbers, those from 2**max_exponent up.
    """

    name: str
    precision: int
    min_exponent: int
    max_exponent: int

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest: half a unit in the last place of 1."""
        return 2.0**-self.precision

    @property
    def smallest_subnormal(self) -> float:
        """Distance between neighbours below the smallest normal number."""
        return 2.0 ** (self.min_exponent - self.precision + 1)

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return 2.0**self.max_exponent * (2.0 - 2.0 ** (1 - self.precision))


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "fp16": Format("fp16", precision=11, min_exponent=-14, max_exponent=15),
        "bf16": Format("bf16", precision=8, min_exponent=-126, max_exponent=127),
        "fp32": Format("fp32", precision=24, min_exponent=-126, max_exponent=127),
    }
)

# The output type of merges alone. Its topmost pattern is NaN, so that its largest number is less
# than its precision says.
FP8 = Format("fp8", precision=4, min_exponent=-6, max_exponent=8)
FP8_LARGEST = 448.0


def format_of(dtype: str, argument: str = "dtype") -> Format:
    """Look a format up by name.

    Args:
        dtype: ``"fp16"``, ``"bf16"`` or ``"fp32"``.
        argument: Name of the argument it came from, for the message.

    Raises:
        ValueError: `dtype` is not one of the names.
    """
    if dtype not in FORMATS:
        raise ValueError(f"{argument}: got {dtype!r}; must be one of {', '.join(FORMATS)}")
    return FORMATS[dtype]


def ulp(x: ArrayLike, dtype: str) -> F64:
    """Unit in the last place of `dtype` at each |x|: the gap to the next number away from 0.

    Args:
        x: Any shape, finite; taken as float64.
        dtype: ``"fp16"``, ``"bf16"`` or ``"fp32"``.

    Returns:
        float64, shape of `x`. Below the normal range it is the subnormal spacing.
    """
    return spacing(x, format_of(dtype))


def spacing(x: ArrayLike, fmt: Format) -> F64:
    """`ulp` of a format that is given itself."""
    values = np.asarray(x, dtype=np.float64)
    _, exponent = np.frexp(values)  # |x| in [2**(e-1), 2**e), and e = 0 for 0
    exponent = np.where(values == 0, fmt.min_exponent, np.maximum(exponent - 1, fmt.min_exponent))
    gap: F64 = np.ldexp(np.float64(1.0), exponent - fmt.precision + 1)
    return gap


def round_to(x: ArrayLike, dtype: str) -> NDArray[Any]:
    """Round to the nearest number of a format, ties to even; overflow gives infinity.

    Args:
        x: Any shape, real. float64 is rounded once, straight to the format.
        dtype: ``"fp16"``, ``"bf16"`` or ``"fp32"``.

    Returns:
        Values of the format, as float32 if `x` is float32 or float16, else as float64.

    Raises:
        ValueError: `dtype` is not one of the names.
    """
    format_of(dtype)
    given = np.asarray(x)
    narrow = given.dtype in (np.float16, np.float32)
    with np.errstate(over="ignore"):
        if dtype == "bf16":
            if narrow:
                return _bf16_of_fp32(given.astype(np.float32))
            return _bf16_of_fp64(given.astype(np.float64))
        rounded = given.astype(np.float16 if dtype == "fp16" else np.float32)
        return rounded.astype(np.float32 if narrow else np.float64)


def _bf16_of_fp32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut off the lower 16 bits after adding half of what they can hold, a hair less if even."""
    bits = np.atleast_1d(x).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    kept = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    rounded = np.where(np.isnan(x), x, kept.view(np.float32).reshape(x.shape))
    return rounded


def _bf16_of_fp64(x: F64) -> F64:
    """Round in units of the last place: x / ulp is exact, so that rint is the one rounding."""
    finite = np.isfinite(x)
    step = ulp(np.where(finite, x, 0.0), "bf16")
    rounded = np.rint(np.where(finite, x, 0.0) / step) * step
    overflow = np.abs(rounded) > FORMATS["bf16"].largest
    rounded = np.where(overflow, np.copysign(np.inf, x), rounded)
    return np.where(finite, rounded, x)
