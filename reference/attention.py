"""Attention itself: the definition that every kernel is held to, and the same by streaming."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import Attn, check_block, resolve
from attngen.reference.merge import State, merge_rows
from attngen.reference.problem import Bool, Head, Problem
from attngen.reference.recurrence import exp_minus, finish, start, update
from attngen.reference.rounding import F64
from attngen.reference.scores import scores


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool = False,
    causal_offset: ArrayLike | None = None,
    window_size: tuple[int, int] = (-1, -1),
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    alibi_slopes: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> State:
    """Softmax attention in float64: o = softmax(s) v and lse = log(sum exp s).

    The score is s = (q . k) * sm_scale; then softcap * tanh(s / softcap); then
    s - slope * |i + causal_offset - j|; then s + bias; then -inf where masked. Masks select: what
    no query sees may hold anything, NaN included. A row that sees no key gives o = 0, lse = -inf. A
    visible score of +inf or NaN makes that row's o and lse NaN.

    Args:
        q: Any real dtype, [batch, seqlen_q, heads_q, head_dim].
        k: Any real dtype, [batch, seqlen_kv, heads_kv, head_dim]. Query head h reads KV head
            h // (heads_q // heads_kv).
        v: Any real dtype, [batch, seqlen_kv, heads_kv, head_dim_v].
        causal: Query i sees key j only if j <= i + causal_offset.
        causal_offset: int, or integers [batch]: position of query 0 among the keys. Default
            seqlen_kv - seqlen_q, which aligns the last query with the last key.
        window_size: (left, right): query i sees `left` keys before position i + causal_offset and
            `right` after it, causal or not; -1 is unbounded.
        sm_scale: Any finite factor of q . k; default 1 / sqrt(head_dim).
        softcap: Bound of the scaled scores, above 0; None is off.
        sinks: Any real dtype, [heads_q]: one more logit in the denominator, with value 0, in
            natural units, neither scaled nor capped. -inf is none. `lse` includes it.
        alibi_slopes: Any real dtype, [heads_q] or [batch, heads_q].
        bias: Any real dtype, broadcasts to [batch, heads_q, seqlen_q, seqlen_kv]; natural units.
        mask: bool, broadcasts to the same shape; True = visible.

    Returns:
        (o, lse): float64 [batch, seqlen_q, heads_q, head_dim_v] and [batch, heads_q, seqlen_q], the
        latter in natural logarithm.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.

    Source: Vaswani et al., arXiv 1706.03762, section 3.2; streamed as in Rabe and Staats, arXiv
    2112.05682, only over query rows, so that the formula stays whole.
    """
    problem = resolve(
        q,
        k,
        v,
        causal=causal,
        causal_offset=causal_offset,
        window_size=window_size,
        sm_scale=sm_scale,
        softcap=softcap,
        sinks=sinks,
        alibi_slopes=alibi_slopes,
        bias=bias,
        mask=mask,
    )
    o, lse = empty_state(problem)
    for b, h, head in problem.heads():
        for rows in head.row_blocks():
            s = scores(head, rows, head.all_keys())
            o[b, rows, h], lse[b, h, rows] = with_sink(*weighted_mean(s, head), head.sink)
    return o, lse


def online_attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, block_n: int = 64, **attn: Unpack[Attn]
) -> State:
    """The same answer by the streaming recurrence over blocks of `block_n` keys.

    Each block updates the state (m, l, acc) with alpha = exp(m_old - m_new): m is the running
    maximum, l the sum of exp(s - m), acc the sum of exp(s - m) v. At the end o = acc / l and
    lse = m + log l.

    Args:
        q: As in `attention`.
        k: As in `attention`.
        v: As in `attention`.
        block_n: Keys a block, 1 or more.
        **attn: The options of `attention`.

    Returns:
        (o, lse) as `attention` returns them.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.

    Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3, with the accumulator of
    FlashAttention, arXiv 2205.14135, algorithm 1, normalised once at the end as in
    FlashAttention-2, arXiv 2307.08691, section 3.1.
    """
    block_n = check_block("block_n", block_n)
    problem = resolve(q, k, v, **attn)
    o, lse = empty_state(problem)
    for b, h, head in problem.heads():
        for rows in head.row_blocks():
            o[b, rows, h], lse[b, h, rows] = with_sink(*_streamed(head, rows, block_n), head.sink)
    return o, lse


def empty_state(problem: Problem) -> State:
    """The state of no keys at all, (o = 0, lse = -inf), for every row of a problem."""
    return np.zeros(problem.o_shape), np.full(problem.lse_shape, -np.inf)


def weighted_mean(s: F64, head: Head) -> State:
    """Mean of the head's values under the weights softmax(s), and log(sum exp s).

    Args:
        s: float64 [rows, seqlen_kv]; -inf counts as masked.
        head: The head, for its values.

    Returns:
        (o, lse): float64 [rows, head_dim_v] and [rows]; (0, -inf) for a row that sees nothing.
    """
    m = s.max(axis=1, initial=-np.inf)
    p = exp_minus(s, m[:, None])
    l = p.sum(axis=1)
    lse = m + np.log(np.where(l == 0, 1.0, l))
    with np.errstate(over="ignore", invalid="ignore"):
        o = (p / np.where(l == 0, 1.0, l)[:, None]) @ head.finite_v
        return o + infinite_part(s > -np.inf, head.v), lse


def with_sink(o: F64, lse: F64, sink: float) -> State:
    """Merge the sink's state (o = 0, lse = sink) into o [rows, head_dim_v], lse [rows].

    As a score, a sink of +inf or NaN makes the row NaN; a merge would take +inf for an empty state.
    """
    sinks = np.full_like(lse, np.nan if sink == np.inf else sink)
    return merge_rows(o, lse, np.zeros_like(o), sinks)


def infinite_part(seen: Bool, v: F64) -> F64:
    """What the infinities and NaNs among the values that a row sees add to its weighted sum.

    Weights are positive, also those that round to 0, so a visible infinity makes the sum infinite,
    and infinities of both signs, or a NaN, make it NaN.

    Args:
        seen: bool [rows, keys].
        v: float64 [keys, head_dim_v].

    Returns:
        float64 [rows, head_dim_v]: 0 where a row sees finite values only.
    """
    some = ~np.isfinite(v).all(axis=1)
    weights, v = seen[:, some].astype(np.float64), v[some]
    plus = weights @ (np.isnan(v) | (v == np.inf)) > 0
    minus = weights @ (np.isnan(v) | (v == -np.inf)) > 0
    return np.where(plus, np.where(minus, np.nan, np.inf), np.where(minus, -np.inf, 0.0))


def _streamed(head: Head, rows: slice, block_n: int) -> State:
    count, head_dim_v = rows.stop - rows.start, head.v.shape[1]
    state = start(count, head_dim_v)
    beyond = np.zeros((count, head_dim_v))
    for keys in head.key_blocks(block_n):
        s = scores(head, rows, keys)
        state = update(state, s, head.finite_v[keys])
        with np.errstate(invalid="ignore"):
            beyond = beyond + infinite_part(s > -np.inf, head.v[keys])
    o, lse = finish(state)
    return o + beyond, lse
