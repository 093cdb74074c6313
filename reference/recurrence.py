"""The streaming recurrence: attention's state (m, l, acc), one block of keys after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attngen.reference.merge import State
from attngen.reference.rounding import F64


@dataclass(frozen=True)
class Running:
    """The state of some query rows after some blocks of keys.

    Attributes:
        m: Largest score so far, [rows]; -inf before any.
        l: Sum of exp(s - m), [rows].
        acc: Sum of exp(s - m) v, [rows, head_dim_v].
        alpha: exp(m_before - m), by which the last block rescaled l and acc, [rows].
    """

    m: F64
    l: F64
    acc: F64
    alpha: F64


def start(rows: int, head_dim_v: int) -> Running:
    """Return the state before any key: m = -inf, l = 0, acc = 0."""
    nothing = np.zeros(rows)
    return Running(np.full(rows, -np.inf), nothing, np.zeros((rows, head_dim_v)), nothing)


def update(state: Running, s: F64, v: F64) -> Running:
    """Take in one block of keys.

    m_new = max(m, max s), alpha = exp(m - m_new), p = exp(s - m_new);
    l_new = alpha l + sum p, acc_new = alpha acc + p v.

    Args:
        state: The state so far.
        s: float64 [rows, keys], scores in natural units; -inf counts as masked.
        v: float64 [keys, head_dim_v], finite.

    Returns:
        The state with the block.
    """
    m = np.maximum(state.m, s.max(axis=1, initial=-np.inf))
    alpha = exp_minus(state.m, m)
    p = exp_minus(s, m[:, None])
    with np.errstate(over="ignore", invalid="ignore"):
        l = alpha * state.l + p.sum(axis=1)
        acc = alpha[:, None] * state.acc + p @ v
    return Running(m, l, acc, alpha)


def finish(state: Running) -> State:
    """O = acc / l and lse = m + log l; (0, -inf) for a row that saw nothing.

    Args:
        state: The state after the last block.

    Returns:
        (o, lse): float64 [rows, head_dim_v] and [rows].
    """
    l = np.where(state.l == 0, 1.0, state.l)
    with np.errstate(invalid="ignore"):
        return state.acc / l[:, None], state.m + np.log(l)


def exp_minus(s: F64, m: F64) -> F64:
    """Return exp(s - m), and 0 where m is -inf: nothing was seen, and -inf - -inf is no number."""
    shift = np.where(m == -np.inf, 0.0, m)
    with np.errstate(over="ignore", invalid="ignore"):  # a score of +inf makes its row NaN
        y: F64 = np.exp(s - shift)
    return y
