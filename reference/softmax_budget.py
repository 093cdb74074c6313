"""The error budget of row softmax, and the plain softmax that the sharp check compares with."""

from __future__ import annotations

import math
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import check_block
from attngen.reference.arithmetic import DIVISION, EXP2, FLUSHED, FP32, LOG2
from attngen.reference.rounding import F64, format_of, round_to, ulp
from attngen.reference.softmax import logits, logsumexp


class Logits(TypedDict, total=False):
    """The options of `logits`, as keywords."""

    mask: ArrayLike | None
    scale: float
    temperature: float


def softmax_budget(
    x: ArrayLike,
    *,
    out_dtype: str,
    additions: int,
    rescales: int = 0,
    log: bool = False,
    **options: Unpack[Logits],
) -> tuple[F64, F64]:
    """Elementwise bounds on |kernel - reference| for softmax (or its logarithm) and for lse.

    They hold for every kernel that sums in float32 what exp2 makes of differences from a maximum.
    All logarithms are natural; u = 2^-24 is one float32 rounding, t = 2^-22 one exp2, and
    d_j = max s - s_j the distance of logit j = x_j scale / temperature from the largest. In order:

    *Exponent.* e_j = exp2((x_j - m) c), c = scale log2(e) / temperature: difference and product
    cost 2 u d_j, the factor, its product with log2(e) and that constant 3 u d_j; exp2 costs t.
    tau_j = 5 u d_j + t. An exponential below 2^-126 is flushed to 0.

    *Sum.* The differences that a term and its rescales take add up to d_j, so that their roundings
    do too, but each rescale brings an exp2 and a product of its own: rescales (t + u). A term
    passes so many `additions`; a sum of positive terms is off by u for each. With p the exact
    softmax and sigma = additions u + rescales (t + u), the logarithm of l is off by at most
    D = log sum_j p_j e^tau_j + sigma / (1 - sigma), and by n 2^-126 for what was flushed (l >= 1).

    *Softmax.* y_j = e_j (1 / l): tau_j + D, one division (t) and one product (u), in the exponent
    of e; 2 2^-126 for what is flushed.

    *Log-softmax.* y_j = (x_j - m) f - log l: three roundings of d_j, D, the logarithm
    t (1 + log n), and one rounding of y_j.

    *lse* = m f + log l: D, the logarithm, and 3 u |max s| + 2 u |lse|.

    *Output.* Half a unit in the last place of |y| plus all of the above, subnormals included.

    Args:
        x: Any real dtype, [..., n], values of the kernel's input type.
        out_dtype: Type of y: ``"fp16"``, ``"bf16"`` or ``"fp32"``. lse is float32.
        additions: Most additions that one term of l passes, in the kernel's order of summation.
        rescales: How often one term may be rescaled: 0 where the maximum is known before the sum.
        log: Whether y is the logarithm of softmax.
        **options: The options of `logits`.

    Returns:
        (y_bound, lse_bound): float64, [..., n] and [...]. 0 for a row of nothing but -inf, a row
        that is NaN, and where y is infinite: those have to match exactly.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value, or a dtype is unknown.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2, for sums.
    """
    format_of(out_dtype, "out_dtype")
    s = logits(np.asarray(x, dtype=np.float64), **options)
    lse = logsumexp(s)
    some = np.isfinite(lse)
    s, lse = np.where(some[..., None], s, 0.0), np.where(some, lse, 0.0)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    seen = s > -np.inf
    below = np.where(seen, top - s, 0.0)
    e = np.where(seen, np.exp(-below), 0.0)
    l = np.maximum(e.sum(axis=-1, keepdims=True), 1.0)
    p = e / l
    log_error = LOG2 * (1 + math.log(max(s.shape[-1], 1)))

    tau = 5 * FP32 * below + EXP2
    sigma = check_block("additions", additions) * FP32 + rescales * (EXP2 + FP32)
    # Beyond a distance of 2**10 a weight is 0 in float64 as in float32.
    moved = (p * np.expm1(np.minimum(tau, 1.0))).sum(axis=-1)
    l_error = np.log1p(moved) + sigma / (1 - sigma) + s.shape[-1] * FLUSHED
    if log:
        y = below + np.log(l)
        y_error = 3 * FP32 * below + (l_error + log_error)[..., None] + FP32 * y
    else:
        y = p
        exponent = tau + l_error[..., None] + DIVISION + FP32
        y_error = y * np.expm1(np.minimum(exponent, 1.0)) + 2 * FLUSHED
    y_error = y_error + ulp(y + y_error, out_dtype) / 2
    lse_error = l_error + log_error + FP32 * (3 * np.abs(top[..., 0]) + 2 * np.abs(lse))
    means = some[..., None] & seen if log else some[..., None]
    return np.where(means, y_error, 0.0), np.where(some, lse_error, 0.0)


def plain_softmax(
    x: ArrayLike, *, out_dtype: str, log: bool = False, **options: Unpack[Logits]
) -> F64:
    """Softmax, or its logarithm, in float32 without tiles, rounded once to the output type.

    Args:
        x: Any real dtype, [..., n].
        out_dtype: ``"fp16"``, ``"bf16"`` or ``"fp32"``.
        log: Whether y is the logarithm of softmax.
        **options: The options of `logits`.

    Returns:
        float64 [..., n], values of the output type.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value, or a dtype is unknown.
    """
    s = logits(np.asarray(x, dtype=np.float32), **options)
    m = s.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        below = s - np.where(m == -np.inf, np.float32(0), m)
        e = np.exp(below)
        l = e.sum(axis=-1, keepdims=True)
        l = np.where(l == 0, np.float32(1), l)
        y = below - np.log(l) if log else e / l
    return round_to(y.astype(np.float64), out_dtype)
