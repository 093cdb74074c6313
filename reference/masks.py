"""Which query sees which key. A new mask is one more line in `visible`."""

from __future__ import annotations

import numpy as np

from attngen.reference.problem import Bool, Head


def visible(head: Head, rows: slice, keys: slice) -> Bool:
    """Whether each query of `rows` sees each key of `keys`.

    Query i stands at position i + offset among the keys. Causal attention lets it see the keys up
    to its own position; a window (left, right) lets it see `left` before and `right` after it.

    Args:
        head: The head, with its mask options.
        rows: Query rows.
        keys: Keys.

    Returns:
        bool [rows, keys].
    """
    position = head.positions(rows)
    j = np.arange(keys.start, keys.stop)
    left, right = head.window
    seen = np.ones((len(position), len(j)), dtype=np.bool_)
    if head.causal:
        seen &= j <= position
    if left >= 0:
        seen &= j >= position - left
    if right >= 0:
        seen &= j <= position + right
    if head.mask is not None:
        seen &= head.mask[rows, keys]
    return seen
