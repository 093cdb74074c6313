"""The error budget: how far from the reference a right kernel may be, by its arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import Attn, resolve
from attngen.reference.arithmetic import (
    DIVISION,
    EXP2,
    FLUSHED,
    FP32,
    LOG2,
    TANH,
    Arithmetic,
    arithmetic,
)
from attngen.reference.attention import empty_state
from attngen.reference.masks import visible
from attngen.reference.merge import State
from attngen.reference.problem import Bool, Head
from attngen.reference.rounding import F64, ulp
from attngen.reference.scores import alibi, capped, scaled

# Beyond this error of an exponent a weight may be anything; then only o's range bounds o.
WILD = 50.0


def error_budget(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    operand_dtype: str,
    out_dtype: str | None = None,
    block_n: int,
    num_splits: int = 1,
    **attn: Unpack[Attn],
) -> State:
    """Elementwise bounds on |kernel - reference| for o and for lse.

    They hold for every kernel that streams blocks of `block_n` keys, rounds P to the operand type
    and does the rest in float32, whatever its tiles of queries, its order and its instructions. All
    logarithms are natural; u = 2^-24 is one float32 rounding, and t = 2^-22 one addition inside a
    tensor-core product, whose sums are cut off twice, on alignment and at the end (t = u for
    float32 operands, whose products are float32 multiply-adds). In order:

    *Score.* A dot product of n = head_dim terms takes n additions, and no partial sum exceeds
    a = sum |q_d k_d|: n t a |sm_scale|. This lets every addition err fully to one side and sees no
    instruction's width; an instruction that adds 8 products at once stays under half of it. Scale
    and its constant: 3 u |s|. Softcap: the error times the cap's slope, and 2^-21 softcap for tanh.
    ALiBi: 2 u |slope distance| and u |s|. Bias: u |s|. Call the sum e_j.

    *Exponent.* p_j = exp2((s_j - m) c): with x_j = max s - s_j, difference, product and constant
    cost 4 u x_j, and u |s_j| if the product is rounded before the difference. The running maximum
    may rise in every block; the differences that p_j and its rescales take then add up to x_j, so
    that their roundings do too, but each exp2 adds its own t: t (1 + blocks). With splits, a weight
    also carries the error of its split's lse: 6 u max(|s_j|, |lse|), one exp2 and one logarithm.
    So the logarithm of weight j is off by at most tau_j = e_j + these.

    *Weights.* Let p be the exact softmax. Weights p_j exp(+-tau_j) move the mean by at most
    e^T sum p_j (e^tau_j - 1) (|v_j| + |o|), T = sum p_j tau_j, for their total is at least e^-T
    (Jensen). The sink is one more weight, with value 0. They move lse by log(sum p_j e^tau_j).

    *P.* Rounding to the operand type: 2^-11 p_j (fp16) or 2^-8 p_j (bf16) times |v_j|, in acc only,
    since l sums P unrounded. An fp16 P below 2^-14 is subnormal and has an absolute error of 2^-25,
    or is lost; exp2 flushes below 2^-126: min(p_j, 2^-25 exp(m - lse)), likewise 2^-126.

    *Accumulation.* A term of acc passes at most block_n additions in its own block's product; then,
    for each of the ceil(seqlen_kv / block_n) blocks, one addition (t) and one rescale (u):
    (block_n t + blocks (t + u)) sum p_j |v_j|. Never seqlen_kv roundings. l likewise, but all
    outside of products: (block_n + 2 blocks) u. Merging splits adds 2 num_splits u to both.

    *Output.* acc / l: t |o|, twice with splits. Rounding to the output type: half a unit in the
    last place of |o| plus all of the above, subnormals included. lse = m + log l: t (1 + log of
    seqlen_kv) for the logarithm and 4 u (|m| + |lse|).

    Where some tau_j exceeds 50 (scores beyond about 2^20), weights say nothing any more: o is
    bounded by 3 max |v|, lse by the largest tau_j.

    Args:
        q: As in `attention`, values of the operand type.
        k: As in `attention`, values of the operand type.
        v: As in `attention`, values of the operand type.
        operand_dtype: Type of q, k, v and P: ``"fp16"``, ``"bf16"`` or ``"fp32"``.
        out_dtype: Type of o, the same names; default `operand_dtype`. lse is float32.
        block_n: Keys a block of the kernel, 1 or more.
        num_splits: Parts of the keys that are merged at the end; 1 is none.
        **attn: The options of `attention`.

    Returns:
        (o_bound, lse_bound): float64, shapes of o and lse. 0 for a row that sees no key (a sink
        apart, whose lse is rounded) and for a row that is NaN: those have to match exactly, and so
        has an infinite or NaN element of o, whose bound means nothing.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value, or a dtype is unknown.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1, for sums;
    Blanchard, Higham and Mary, SIAM J. Sci. Comput. 42(3), 2020, for sums in blocks; Fasi, Higham,
    Mikaitis and Pranesh, PeerJ Comput. Sci. 7:e330, 2021, for tensor cores that cut off.
    """
    problem = resolve(q, k, v, **attn)
    head_dim, seqlen_kv = problem.q.shape[3], problem.k.shape[1]
    rules = arithmetic(operand_dtype, out_dtype, head_dim, seqlen_kv, block_n, num_splits)
    o_bound, lse_bound = empty_state(problem)
    lse_bound[...] = 0.0
    for b, h, head in problem.heads():
        for rows in head.row_blocks():
            o_bound[b, rows, h], lse_bound[b, h, rows] = _bounds(head, rows, rules)
    return o_bound, lse_bound


def score_error(head: Head, rows: slice, product_error: F64) -> tuple[F64, F64]:
    """Scores and the error of each in a kernel, natural units; masked ones (-inf, 0).

    Follows `scores` step by step, from the error of the scaled products [rows, keys].
    """
    keys = head.all_keys()
    with np.errstate(over="ignore", invalid="ignore"):
        s = scaled(head, rows, keys)
        error = product_error + 3 * FP32 * np.abs(s)
        if head.softcap is not None:
            error = cap_slope(s, error, head.softcap) * error + TANH * head.softcap
            s = capped(s, head.softcap)
        if head.slope is not None:
            addend = alibi(head, rows, keys, head.slope)
            s = s + addend
            error = error + 2 * FP32 * np.abs(addend) + FP32 * np.abs(s)
        if head.bias is not None:
            s = s + head.bias[rows, keys]
            error = error + FP32 * np.abs(s)
    masked = ~visible(head, rows, keys) | (s == -np.inf)
    s[masked], error[masked] = -np.inf, 0.0
    return s, error


def cap_slope(s: F64, error: F64, softcap: float) -> F64:
    """Largest slope of the softcap within `error` of s: 1 - tanh^2 at the point nearest to 0."""
    nearest = np.maximum(np.abs(s) - error, 0.0) / softcap
    slope: F64 = 1.0 - np.tanh(nearest) ** 2
    return slope


@dataclass(frozen=True)
class Rows:
    """The reference's softmax over a block of rows, as the budgets need it.

    Attributes:
        s: Scores [rows, keys], -inf where masked.
        p: Weights softmax(s) [rows, keys], the sink in the denominator.
        p_sink: Weight of the sink [rows].
        seen: Whether a row sees any key, bool [rows].
        m: Largest score [rows]; 0 where there is none.
        lse: [rows].
        o: [rows, head_dim_v], of the finite part of v.
    """

    s: F64
    p: F64
    p_sink: F64
    seen: Bool
    m: F64
    lse: F64
    o: F64


def softmax_rows(s: F64, v: F64, sink: float) -> Rows:
    """Softmax of the scores s [rows, keys] and their mean of v [keys, head_dim_v], with a sink."""
    top = s.max(axis=1, initial=-np.inf)
    shift = np.maximum(top, sink)
    shift = np.where(shift == -np.inf, 0.0, shift)
    e, e_sink = np.exp(s - shift[:, None]), np.exp(sink - shift)
    l = e.sum(axis=1) + e_sink
    empty = l == 0
    divisor = np.where(empty, 1.0, l)
    p = e / divisor[:, None]
    lse = np.where(empty, -np.inf, shift + np.log(divisor))
    seen = top > -np.inf
    return Rows(s, p, e_sink / divisor, seen, np.where(seen, top, 0.0), lse, p @ v)


def _bounds(head: Head, rows: slice, rules: Arithmetic) -> State:
    v = head.finite_v
    with np.errstate(over="ignore", invalid="ignore"):  # NaN rows are dropped at the end
        size = (np.abs(head.q[rows]) @ np.abs(head.k).T) * abs(head.scale)
        s, error = score_error(head, rows, rules.score_error * size)
        row = softmax_rows(s, v, head.sink)
        tau, tau_sink = exponent_error(row, error, head.sink, rules)
        o_error, lse_error = _propagated(row, v, tau, tau_sink, rules)
    return only_where_it_means_something(row, o_error, lse_error)


def exponent_error(row: Rows, error: F64, sink: float, rules: Arithmetic) -> tuple[F64, F64]:
    """Error tau of the logarithm of each weight, [rows, keys], and of the sink's, [rows]."""
    log_l = math.log(max(rules.seqlen_kv, 1))
    below = row.m[:, None] - row.s
    tau = error + FP32 * (4 * below + np.abs(row.s)) + rules.exp2_error
    if rules.merges:
        far = np.maximum(np.abs(row.s), np.abs(row.lse)[:, None])
        tau = tau + 6 * FP32 * far + EXP2 + LOG2 * (1 + log_l)
    tau_sink = FP32 * (4 * abs(sink) + 8 * np.abs(row.m)) + 2 * EXP2 + LOG2 * (1 + log_l)
    return np.where(row.s == -np.inf, 0.0, tau), np.where(row.p_sink == 0, 0.0, tau_sink)


def only_where_it_means_something(row: Rows, o_error: F64, lse_error: F64) -> State:
    """Bounds of 0 for empty and NaN rows; an empty row's lse is its sink, by way of base 2."""
    with np.errstate(invalid="ignore"):
        lse_error = np.where(row.seen, lse_error, 8 * FP32 * np.abs(row.lse))
    some = np.isfinite(row.lse)
    return np.where((some & row.seen)[:, None], o_error, 0.0), np.where(some, lse_error, 0.0)


def _propagated(row: Rows, v: F64, tau: F64, tau_sink: F64, rules: Arithmetic) -> State:
    worst = np.maximum(tau.max(axis=1, initial=0.0), tau_sink)
    wild = worst > WILD
    mean = (row.p * tau).sum(axis=1) + row.p_sink * tau_sink

    # acc / l before its own rounding: moved weights, rounded P, rounded sums.
    moved = row.p * np.expm1(np.minimum(tau, WILD))
    moved_sum = moved.sum(axis=1) + row.p_sink * np.expm1(np.minimum(tau_sink, WILD))
    grown = row.p + moved
    tiny = rules.p_tiny * np.exp(np.minimum(worst, WILD) + row.m - row.lse)
    rounded = np.maximum(rules.p_unit * grown, np.minimum(tiny[:, None], grown))
    weight = moved + rounded + rules.acc_error * (grown + rounded)
    o_error = weight @ np.abs(v) + np.abs(row.o) * moved_sum[:, None]
    o_error = o_error * np.exp(np.minimum(mean, WILD))[:, None]
    ceiling = 3 * (1 + rules.acc_error) * np.abs(v).max(axis=0, initial=0.0)
    o_error = np.where(wild[:, None], ceiling, np.minimum(o_error, ceiling))

    # The division and the rounding of the output.
    stages = 2 if rules.merges else 1
    divided = (1 + DIVISION) ** stages / (1 - rules.l_error) - 1
    o_error = o_error + (np.abs(row.o) + o_error) * divided
    o_error = o_error + FLUSHED * (1 + ceiling)
    o_error = o_error + ulp(np.abs(row.o) + o_error, rules.out.name) / 2

    log_l = math.log(max(rules.seqlen_kv, 1))
    lse_error = np.where(wild, worst, np.log1p(moved_sum)) + rules.l_error / (1 - rules.l_error)
    lse_error = lse_error + stages * LOG2 * (1 + log_l)
    lse_error = lse_error + FP32 * (4 * np.abs(row.m) + 4 * np.abs(row.lse))
    return o_error, lse_error
