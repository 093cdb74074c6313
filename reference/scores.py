"""The score of each query for each key: product, scale, softcap, ALiBi, bias, mask, in order."""

from __future__ import annotations

import numpy as np

from attngen.reference.masks import visible
from attngen.reference.problem import Head
from attngen.reference.rounding import F64


def scaled(head: Head, rows: slice, keys: slice) -> F64:
    """Scaled dot products (q . k) * sm_scale; [rows, keys]."""
    products: F64 = head.q[rows] @ head.k[keys].T
    return products * head.scale


def capped(s: F64, softcap: float) -> F64:
    """Scores squeezed into (-softcap, softcap): softcap * tanh(s / softcap)."""
    squeezed: F64 = np.tanh(s / softcap)
    return softcap * squeezed


def alibi(head: Head, rows: slice, keys: slice, slope: float) -> F64:
    """ALiBi's addend -slope * |i + offset - j|; [rows, keys]."""
    distance = head.positions(rows) - np.arange(keys.start, keys.stop)
    return -slope * np.abs(distance).astype(head.q.dtype)


def scores(head: Head, rows: slice, keys: slice) -> F64:
    """Scores in natural units, masked ones -inf.

    Args:
        head: One query head.
        rows: Query rows.
        keys: Keys.

    Returns:
        float64 [rows, keys], or the type of head.q. A score of -inf from any source counts as
        masked.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is masked may be inf or NaN
        s = scaled(head, rows, keys)
        if head.softcap is not None:
            s = capped(s, head.softcap)
        if head.slope is not None:
            s = s + alibi(head, rows, keys, head.slope)
        if head.bias is not None:
            s = s + head.bias[rows, keys].astype(s.dtype)
    return np.where(visible(head, rows, keys), s, -np.inf)
