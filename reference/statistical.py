"""The statistical error budget for float32 operands: roundings that mostly cancel."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import Attn, resolve
from attngen.reference.arithmetic import DIVISION, FP32, LOG2, Arithmetic, arithmetic
from attngen.reference.attention import empty_state
from attngen.reference.budget import (
    Rows,
    exponent_error,
    only_where_it_means_something,
    score_error,
    softmax_rows,
)
from attngen.reference.merge import State
from attngen.reference.problem import Head
from attngen.reference.rounding import F64, ulp
from attngen.reference.scores import scaled

# Standard deviations allowed. A rounding counts as one where it is 0.58 at most.
SIGMAS = 5.0


def statistical_budget(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    operand_dtype: str = "fp32",
    out_dtype: str | None = None,
    block_n: int,
    num_splits: int = 1,
    **attn: Unpack[Attn],
) -> State:
    """Bounds like those of `error_budget`, for float32 operands and roundings that mostly cancel.

    The hard bound lets every rounding err by its most and to one side; with float32 operands
    nothing else is left, and it is hundreds of times larger than what is seen. Here each rounding
    is an independent error of mean 0, so that n of them amount to sqrt(n):

    A score's n = head_dim roundings are of partial sums no larger than |s| plus a random walk
    through its terms, sqrt(sum (q_d k_d)^2) |sm_scale|. Errors of different weights add up in
    squares: sum (p_j tau_j v_j)^2. acc's block_n + 2 blocks roundings are of partial sums no larger
    than |o| plus twice sqrt(sum (p_j v_j)^2). Division and l err for a row as a whole and count
    fully. The root of the sum of squares is allowed SIGMAS = 5 times, where each rounding counts as
    its maximum, 1.7 standard deviations at the least; then the output is rounded.

    It holds for inputs whose terms are independent. Inputs can be made to line up, as thousands of
    equal keys do: for those there is `error_budget`.

    Args:
        q: As in `attention`, float32 values.
        k: As in `attention`, float32 values.
        v: As in `attention`, float32 values.
        operand_dtype: ``"fp32"``.
        out_dtype: As in `error_budget`.
        block_n: As in `error_budget`.
        num_splits: As in `error_budget`.
        **attn: The options of `attention`.

    Returns:
        (o_bound, lse_bound) as `error_budget` returns them.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value, or `operand_dtype` is not ``"fp32"``.

    Source: Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019, for the square root of the count.
    """
    if operand_dtype != "fp32":
        raise ValueError(
            f"operand_dtype: got {operand_dtype!r}; must be fp32: sums that are cut off, as in"
            " 16-bit products, err to one side and do not cancel"
        )
    problem = resolve(q, k, v, **attn)
    head_dim, seqlen_kv = problem.q.shape[3], problem.k.shape[1]
    rules = arithmetic(operand_dtype, out_dtype, head_dim, seqlen_kv, block_n, num_splits, True)
    o_bound, lse_bound = empty_state(problem)
    lse_bound[...] = 0.0
    for b, h, head in problem.heads():
        for rows in head.row_blocks():
            o_bound[b, rows, h], lse_bound[b, h, rows] = _bounds(head, rows, rules)
    return o_bound, lse_bound


def _bounds(head: Head, rows: slice, rules: Arithmetic) -> State:
    v = head.finite_v
    with np.errstate(over="ignore", invalid="ignore"):  # NaN rows are dropped at the end
        spread = np.sqrt((head.q[rows] ** 2) @ (head.k**2).T) * abs(head.scale)
        partial = np.abs(scaled(head, rows, head.all_keys())) + spread
        s, error = score_error(head, rows, rules.score_error * partial)
        row = softmax_rows(s, v, head.sink)
        tau, tau_sink = exponent_error(row, error, head.sink, rules)
        o_error, lse_error = _propagated(row, v, tau, tau_sink, rules)
    return only_where_it_means_something(row, o_error, lse_error)


def _propagated(row: Rows, v: F64, tau: F64, tau_sink: F64, rules: Arithmetic) -> State:
    # Independent errors of the weights: squares add up.
    moved2 = (row.p * tau) ** 2
    sink2 = (row.p_sink * tau_sink) ** 2
    moved_sum2 = moved2.sum(axis=1) + sink2
    weights2 = moved2 @ v**2 + row.o**2 * moved_sum2[:, None]

    # Partial sums of acc are of the size of a random walk through its terms, and of its end.
    walk = np.abs(row.o) + 2 * np.sqrt(row.p**2 @ v**2)
    stages = 2 if rules.merges else 1
    final = np.abs(row.o) * (rules.l_error + stages * DIVISION)
    o_error = SIGMAS * np.sqrt(weights2 + (rules.acc_error * walk) ** 2 + final**2)
    o_error = o_error + ulp(np.abs(row.o) + o_error, rules.out.name) / 2

    log_l = math.log(max(rules.seqlen_kv, 1))
    lse_error = SIGMAS * np.sqrt(moved_sum2 + rules.l_error**2) + stages * LOG2 * (1 + log_l)
    lse_error = lse_error + FP32 * (4 * np.abs(row.m) + 4 * np.abs(row.lse))
    return o_error, lse_error
