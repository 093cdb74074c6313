"""Other forms of merging that kernels have, each made of the one definition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.merge import STATES, State, checked_state, merge_rows, to_or_from_th


def merge_states_base2(o: ArrayLike, lse: ArrayLike, *, lse_layout: str = "ht") -> State:
    """`merge_states` with every lse a logarithm to base 2, as FlashInfer has it."""
    os, lses = checked_state("o", o, "lse", lse, lse_layout, dims=STATES)
    merged = (np.zeros(os.shape[1:]), np.full(lses.shape[1:], -np.inf))
    merged = reduce(lambda a, b: merge_rows(*a, *b, base2=True), zip(os, lses, strict=True), merged)
    return merged[0], to_or_from_th(merged[1], lse_layout)


def dense_states(
    o: ArrayLike, lse: ArrayLike, indptr: Sequence[int], *, lse_layout: str = "ht"
) -> State:
    """The states of ragged lists as those of equally long ones, filled up with empty states.

    Args:
        o: [states, heads, head_dim], the states of all tokens one after the other.
        lse: [heads, states] (``"ht"``) or [states, heads] (``"th"``).
        indptr: [tokens + 1]: the states of token t are those from indptr[t] up to indptr[t + 1],
            which is not among them.
        lse_layout: ``"ht"`` or ``"th"``.

    Returns:
        (o, lse) for `merge_states`: float64 [n, tokens, heads, head_dim], n the longest list, and
        [n, heads, tokens] or [n, tokens, heads].

    Raises:
        TypeError: An array is not of real numbers.
        ValueError: Shapes do not agree, or `lse_layout` is unknown.
    """
    os, lses = checked_state("o", o, "lse", lse, lse_layout)
    counts = np.diff(indptr)
    shape = (max(counts, default=0), len(counts), *os.shape[1:])
    dense_o, dense_lse = np.zeros(shape), np.full(shape[:-1], -np.inf)
    for token, (first, count) in enumerate(zip(indptr, counts, strict=False)):
        dense_o[:count, token] = os[first : first + count]
        dense_lse[:count, token] = lses[first : first + count]
    return dense_o, to_or_from_th(dense_lse, lse_layout)
