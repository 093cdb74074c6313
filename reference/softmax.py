"""Softmax over the last axis in three ways, and logsumexp, in the floating type of x.

They compute in the type they are given, so that one can see where naive softmax dies: float16 holds
exp(x) only up to x = ln 65504 = 11.09, float32 only up to 88.7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import check_block, check_number, real_array
from attngen.reference.problem import Array


def naive_softmax(x: ArrayLike) -> Array:
    """Softmax by its definition, exp(x) / sum(exp(x)).

    Where exp overflows the result is NaN, and 0 elsewhere in such a row; where all exponentials
    round to 0 it is NaN.

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.

    Returns:
        Shape and floating type of `x`.

    Raises:
        TypeError: `x` is not of real numbers.
        ValueError: `x` has no axis.
    """
    x = _floating(x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        e = np.exp(x)
        y: Array = e / e.sum(axis=-1, keepdims=True)
    return y


def safe_softmax(x: ArrayLike) -> Array:
    """Softmax in three passes: the maximum m, the sum of exp(x - m), and the division.

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.

    Returns:
        Shape and floating type of `x`. A row of nothing but -inf is the empty state and gives
        zeros; a row with +inf or NaN is NaN.

    Raises:
        TypeError: `x` is not of real numbers.
        ValueError: `x` has no axis.

    Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 2.
    """
    x = _floating(x)
    m = x.max(axis=-1, keepdims=True, initial=-np.inf)
    return _divided(x, m, _exp_minus(x, m).sum(axis=-1, keepdims=True))


def online_softmax(x: ArrayLike, block: int = 64) -> Array:
    """Softmax in two passes: maximum and sum together, block by block, and the division.

    A block with maximum m_b turns (m, l) into m_new = max(m, m_b) and
    l_new = l exp(m - m_new) + sum(exp(x_b - m_new)).

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.
        block: Elements a block, 1 or more.

    Returns:
        As `safe_softmax`.

    Raises:
        TypeError: `x` is not of real numbers, or `block` is not an integer.
        ValueError: `x` has no axis, or `block` is below 1.

    Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3.
    """
    x = _floating(x)
    m, l = _streamed(x, check_block("block", block))
    return _divided(x, m, l)


def logsumexp(x: ArrayLike) -> Array:
    """Natural logarithm of sum(exp(x)), as m + log(sum(exp(x - m))).

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.

    Returns:
        [...], floating type of `x`: -inf for a row of nothing but -inf or of no elements, NaN for a
        row with +inf or NaN.

    Raises:
        TypeError: `x` is not of real numbers.
        ValueError: `x` has no axis.
    """
    x = _floating(x)
    m = x.max(axis=-1, keepdims=True, initial=-np.inf)
    l = _exp_minus(x, m).sum(axis=-1, keepdims=True)
    y: Array = (m + np.log(np.where(l == 0, x.dtype.type(1), l)))[..., 0]
    return y


def logits(
    x: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    scale: float = 1.0,
    temperature: float = 1.0,
) -> Array:
    """What softmax is taken of: x scale / temperature, -inf where x is -inf or masked.

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.
        mask: bool, broadcasts to `x`; True = visible. What is masked may hold anything.
        scale: Finite; zero and negative ones too. An entry of -inf stays -inf whatever the scale,
            and one of +inf is NaN, so that its row is.
        temperature: Finite and above 0.

    Returns:
        Shape and floating type of `x`.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.
    """
    x = _floating(x)
    kind = x.dtype.type
    factor = kind(
        check_number("scale", scale) / check_number("temperature", temperature, positive=True)
    )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        s = np.where(x == np.inf, kind(np.nan), np.where(x == -np.inf, x, x * factor))
    if mask is None:
        return s
    visible = np.asarray(mask)
    if visible.dtype != np.bool_:
        raise TypeError(f"mask: got dtype {visible.dtype}; must be bool, True = visible")
    try:
        visible = np.broadcast_to(visible, x.shape)
    except ValueError:
        raise ValueError(
            f"mask: got shape {visible.shape}; must broadcast to {list(x.shape)}"
        ) from None
    return np.where(visible, s, kind(-np.inf))


def log_softmax(x: ArrayLike) -> Array:
    """Logarithm of softmax, x - logsumexp(x), as (x - m) - log(sum(exp(x - m))).

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.

    Returns:
        Shape and floating type of `x`: -inf in a row of nothing but -inf, NaN in a row with +inf or
        NaN.

    Raises:
        TypeError: `x` is not of real numbers.
        ValueError: `x` has no axis.
    """
    x = _floating(x)
    m = x.max(axis=-1, keepdims=True, initial=-np.inf)
    l = _exp_minus(x, m).sum(axis=-1, keepdims=True)
    shift = np.where(m == -np.inf, x.dtype.type(0), m)
    with np.errstate(invalid="ignore", over="ignore"):
        y: Array = (x - shift) - np.log(np.where(l == 0, x.dtype.type(1), l))
    return y


def softmax_topk(x: ArrayLike, k: int) -> tuple[Array, Array, Array]:
    """The k largest entries of each row, where they stand, and their softmax over the whole row.

    Args:
        x: Any real dtype, [..., n]; integers are taken as float64.
        k: Entries a row, 1 or more.

    Returns:
        (values, indices, probabilities), each [..., k], largest first; of equal entries the one
        with the lower index comes first. values and probabilities have the floating type of `x`,
        indices are int64. An entry of -inf counts as masked: ranks for which a row has no other
        entry left hold (-inf, -1, 0). In a row with +inf or NaN all ranks hold (NaN, -1, NaN).

    Raises:
        TypeError: `x` is not of real numbers, or `k` is not an integer.
        ValueError: `x` has no axis, or `k` is below 1.

    Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 4.
    """
    x = _floating(x)
    check_block("k", k)
    room = [(0, 0)] * (x.ndim - 1) + [(0, k)]
    padded = np.pad(x, room, constant_values=-np.inf)
    indices = np.argsort(-padded, axis=-1, kind="stable")[..., :k]
    values = np.take_along_axis(padded, indices, axis=-1)
    y = np.take_along_axis(np.pad(safe_softmax(x), room), indices, axis=-1)
    broken = np.isnan(logsumexp(x))[..., None]
    values, y = (np.where(broken, x.dtype.type(np.nan), a) for a in (values, y))
    return values, np.where(values > -np.inf, indices, -1), y


def _streamed(x: Array, block: int) -> tuple[Array, Array]:
    m = np.full((*x.shape[:-1], 1), -np.inf, dtype=x.dtype)
    l = np.zeros_like(m)
    for start in range(0, x.shape[-1], block):
        x_b = x[..., start : start + block]
        m_new = np.maximum(m, x_b.max(axis=-1, keepdims=True))
        l = l * _exp_minus(m, m_new) + _exp_minus(x_b, m_new).sum(axis=-1, keepdims=True)
        m = m_new
    return m, l


def _exp_minus(x: Array, m: Array) -> Array:
    """Return exp(x - m), 0 where m is -inf: nothing has been seen yet."""
    shift = np.where(m == -np.inf, x.dtype.type(0), m)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        y: Array = np.exp(x - shift)
    return y


def _divided(x: Array, m: Array, l: Array) -> Array:
    y: Array = _exp_minus(x, m) / np.where(l == 0, x.dtype.type(1), l)
    return y


def _floating(x: ArrayLike) -> Array:
    array = real_array("x", x)
    if array.ndim == 0:
        raise ValueError("x: got a single number; must have at least one axis")
    return array if array.dtype.kind == "f" else array.astype(np.float64)
