"""The error budget of merges: how far from the reference a right merge kernel may be."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arithmetic import DIVISION, EXP2, FLUSHED, FP32, LOG2
from attngen.reference.merge import STATES, State, checked_state, to_or_from_th
from attngen.reference.problem import Bool
from attngen.reference.rounding import F64, FP8, FP8_LARGEST, format_of, spacing


def merge_budget(
    o: ArrayLike,
    lse: ArrayLike,
    *,
    out_dtype: str,
    lse_layout: str = "ht",
    base2: bool = False,
    output_scale: float = 1.0,
    block_states: int = 1,
) -> State:
    """Elementwise bounds on |kernel - reference| for the o and the lse of n states merged.

    They hold for every kernel that computes in float32, whatever its order: u = 2^-24 is one
    rounding, t = 2^-22 one approximate instruction (exp2, log2, division). In order, natural units:

    *Weight.* w_i = exp2((lse_i - M) log2(e)). M is one of the lse, exact; with x_i = M - lse_i the
    difference, the constant and the product cost 3 u x_i (base 2: u x_i, the difference alone), and
    exp2 costs t. So the logarithm of w_i is off by at most tau_i = 3 u x_i + t. exp2 flushes below
    2^-126.

    *Total.* The sum over all i is made in blocks of `block_states`; each may raise the running
    maximum, and costs one more exp2 then, whose exponents add up to x_i with those of the weight:
    tau_i + blocks t. Every term passes at most n additions and 2 for each block: (n + 2 blocks) u.
    Let p be the exact scales w_i / sum w. The logarithm of the total is off by at most
    d = log(sum p_i exp(tau_i + blocks t)) + (n + 2 blocks) u; for errors downwards by Jensen.

    *Scale.* w_i (1 / total): exp(tau_i + d + t + u) - 1 relative to p_i.

    *Sum.* Each product of a scale and o_i is rounded once and passes at most n additions:
    (n + 1) u, of sum p_i |o_i|. Cutting the sum back to the largest |o_i| only helps.

    *Output.* With an output_scale: a reciprocal (t) and a product (u), then everything above is
    divided by it. Saturation at 448 (float8_e4m3fn) brings no two numbers further apart. Rounding:
    half a unit in the last place of |o| plus all of the above.

    *lse* = M + log(total): d, t (1 + log of the total) for the logarithm, 2 u log(total) for its
    constant and product, u |lse| for the sum. In base 2, d / log(2) for d and no constant.

    Args:
        o: [n, *batch, tokens, heads, head_dim], what the kernel gets.
        lse: [n, *batch, heads, tokens] ("ht") or [n, *batch, tokens, heads] ("th").
        out_dtype: Type of the merged o: ``"fp16"``, ``"bf16"``, ``"fp32"`` or ``"fp8"``.
        lse_layout: ``"ht"`` or ``"th"``.
        base2: Whether every lse is a logarithm to base 2.
        output_scale: What o is divided by at the end.
        block_states: States whose lse the kernel sums up at once.

    Returns:
        (o_bound, lse_bound): float64, shapes of the merged o and lse. 0 where all states are empty
        and where a NaN lse makes all NaN; 0 for the lse of a state that is alone, whose o has the
        output's rounding left: these are selected, not computed.

    Raises:
        TypeError: An array is not of real numbers.
        ValueError: Shapes do not agree, or `out_dtype` or `lse_layout` is unknown.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
    """
    fmt = FP8 if out_dtype == "fp8" else format_of(out_dtype, "out_dtype")
    values, logs = checked_state("o", o, "lse", lse, lse_layout, dims=STATES)
    full = np.isfinite(logs)
    values = np.where(full[..., None], values, 0.0)
    size = np.abs(values)
    p, below, log_total = _scales(logs, full, base2)

    blocks = math.ceil(len(values) / block_states)
    tau = (1 if base2 else 3) * FP32 * below + EXP2
    sums = (len(values) + 2 * blocks) * FP32
    d = np.log1p((p * _grown(p, tau + blocks * EXP2)).sum(axis=0)) + sums
    grown = p * _grown(p, tau + d + DIVISION + FP32)
    rounded = (len(values) + 1) * FP32 * (p + grown)
    o_error = ((grown + rounded)[..., None] * size).sum(axis=0)
    o_error += len(values) * FLUSHED * (1 + size.max(axis=0, initial=0.0))

    alone = full.sum(axis=0) <= 1
    o_error = np.where(alone[..., None], 0.0, o_error)
    o_size = np.abs((p[..., None] * values).sum(axis=0))
    if out_dtype == "fp8":
        scaled = (o_size + o_error) / output_scale
        o_error = o_error / output_scale + scaled * (DIVISION + FP32)
        o_size = np.minimum(o_size / output_scale, FP8_LARGEST)
    o_error += spacing(np.minimum(o_size + o_error, _largest(out_dtype)), fmt) / 2

    unit = math.log(2) if base2 else 1.0
    lse_error = (d + LOG2 * (1 + log_total) + 2 * FP32 * log_total) / unit
    lse_error += FP32 * np.abs(np.where(full, logs, 0.0)).max(axis=0, initial=0.0)
    lse_error += FP32 * log_total / unit
    means_something: Bool = np.asarray(full.any(axis=0) & ~np.isnan(logs).any(axis=0))
    o_bound = np.where(means_something[..., None], o_error, 0.0)
    return o_bound, to_or_from_th(np.where(means_something & ~alone, lse_error, 0.0), lse_layout)


def _scales(logs: F64, full: Bool, base2: bool) -> tuple[F64, F64, F64]:
    """The exact scales p, how far each lse lies below the largest, the logarithm of the total."""
    unit = math.log(2) if base2 else 1.0
    top = np.where(full, logs, -np.inf).max(axis=0, initial=-np.inf)
    below = np.where(full, np.where(np.isinf(top), 0.0, top) - logs, 0.0) * unit
    with np.errstate(under="ignore"):
        w = np.where(full, np.exp(-below), 0.0)
    total = np.maximum(w.sum(axis=0), 1.0)
    return w / total, below, np.log(total)


def _grown(p: F64, error: F64) -> F64:
    """By how much a weight grows with an error of its logarithm; weights of 0 stay."""
    growth: F64 = np.expm1(np.where(p > 0, error, 0.0))
    return growth


def _largest(out_dtype: str) -> float:
    return FP8_LARGEST if out_dtype == "fp8" else format_of(out_dtype).largest
