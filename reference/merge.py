"""Merging attention states: a commutative monoid with identity (o = 0, lse = -inf).

A state (o, lse) is what attention over some set of keys leaves: the weighted mean of their values
and the logarithm of their total weight. States over disjoint sets merge into the state over their
union, in any order and any grouping (FlashAttention, arXiv 2205.14135, section 3.1; Rabe and
Staats, arXiv 2112.05682, section 2). The streaming recurrence is this merge, one tile at a time.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import real_array
from attngen.reference.problem import Bool
from attngen.reference.rounding import F64

State = tuple[F64, F64]

STATES = "[n, *batch, tokens, heads, head_dim]"
LAYOUTS = {"ht": "[*batch, heads, tokens]", "th": "[*batch, tokens, heads]"}


def empty(lse: F64) -> Bool:
    """Whether each state is empty: lse = -inf, or +inf as FlashAttention-2 writes it; bool."""
    return np.isinf(lse)


def merge_rows(o_a: F64, lse_a: F64, o_b: F64, lse_b: F64, *, base2: bool = False) -> State:
    """Merge states whose lse [...] lines up with o [..., head_dim_v]; `merge_state` says how.

    With `base2` every lse is a logarithm to base 2, as FlashInfer has it.
    """
    exp, log = (np.exp2, np.log2) if base2 else (np.exp, np.log)
    a_empty, b_empty = empty(lse_a), empty(lse_b)
    lse_a = np.where(a_empty, -np.inf, lse_a)
    lse_b = np.where(b_empty, -np.inf, lse_b)
    m = np.maximum(lse_a, lse_b)
    shift = np.where(m == -np.inf, 0.0, m)
    with np.errstate(over="ignore", invalid="ignore"):  # an empty state's o may be NaN
        w_a, w_b = exp(lse_a - shift), exp(lse_b - shift)
        total = np.where(a_empty & b_empty, 1.0, w_a + w_b)
        o = (w_a / total)[..., None] * o_a + (w_b / total)[..., None] * o_b
    lse = shift + log(total)
    # Selection, not arithmetic: the other state's values bit for bit, the sign of 0 included.
    o = np.where(b_empty[..., None], o_a, np.where(a_empty[..., None], o_b, o))
    lse = np.where(b_empty, lse_a, np.where(a_empty, lse_b, lse))
    o = np.where((a_empty & b_empty)[..., None], 0.0, o)
    return np.where(np.isnan(lse)[..., None], np.nan, o), lse


def merge_state(
    o_a: ArrayLike, lse_a: ArrayLike, o_b: ArrayLike, lse_b: ArrayLike, *, lse_layout: str = "ht"
) -> State:
    """Merge two attention states over disjoint sets of keys.

    With M = max(lse_a, lse_b) and w = exp(lse - M) the result is the convex combination
    o = w_a / (w_a + w_b) o_a + w_b / (w_a + w_b) o_b, and lse = M + log(w_a + w_b). An input whose
    lse is -inf or +inf is empty: its o is ignored, NaN or not, and the result is the other state
    bit for bit; two empty states give (0, -inf). A NaN lse gives NaN.

    Args:
        o_a: Any real dtype, [*batch, tokens, heads, head_dim].
        lse_a: Any real dtype, natural logarithm, in the layout that `lse_layout` names.
        o_b: Shape of `o_a`.
        lse_b: Shape of `lse_a`.
        lse_layout: ``"ht"`` for [*batch, heads, tokens] (FlashAttention, vLLM) or ``"th"`` for
            [*batch, tokens, heads] (SGLang, FlashInfer).

    Returns:
        (o, lse): float64, shapes of `o_a` and `lse_a`.

    Raises:
        TypeError: An array is not of real numbers.
        ValueError: Shapes do not agree, or `lse_layout` is unknown.
    """
    a = checked_state("o_a", o_a, "lse_a", lse_a, lse_layout)
    b = checked_state("o_b", o_b, "lse_b", lse_b, lse_layout)
    if b[0].shape != a[0].shape:
        raise ValueError(f"o_b: got shape {b[0].shape}; must be that of o_a, {a[0].shape}")
    o, lse = merge_rows(*a, *b)
    return o, to_or_from_th(lse, lse_layout)


def merge_states(o: ArrayLike, lse: ArrayLike, *, lse_layout: str = "ht") -> State:
    """Merge n attention states over disjoint sets of keys: the fold of `merge_state`.

    Args:
        o: Any real dtype, [n, *batch, tokens, heads, head_dim]; n may be 0.
        lse: Any real dtype, natural logarithm, [n, *batch, heads, tokens] (``"ht"``) or
            [n, *batch, tokens, heads] (``"th"``).
        lse_layout: ``"ht"`` or ``"th"``, as in `merge_state`.

    Returns:
        (o, lse): float64, without the leading n. No states at all give the identity (0, -inf).

    Raises:
        TypeError: An array is not of real numbers.
        ValueError: Shapes do not agree, or `lse_layout` is unknown.
    """
    os, lses = checked_state("o", o, "lse", lse, lse_layout, dims=STATES)
    identity = (np.zeros(os.shape[1:]), np.full(lses.shape[1:], -np.inf))
    o_all, lse_all = reduce(lambda a, b: merge_rows(*a, *b), zip(os, lses, strict=True), identity)
    return o_all, to_or_from_th(lse_all, lse_layout)


def to_or_from_th(lse: F64, lse_layout: str) -> F64:
    """Between `lse_layout` and "th", where lse lines up with o; a swap, so its own inverse."""
    return lse if lse_layout == "th" else np.swapaxes(lse, -1, -2)


def checked_state(
    o_name: str,
    o: ArrayLike,
    lse_name: str,
    lse: ArrayLike,
    lse_layout: str,
    dims: str = "[*batch, tokens, heads, head_dim]",
) -> State:
    """Checked o and lse in float64, lse in the layout "th"."""
    if lse_layout not in LAYOUTS:
        raise ValueError(f"lse_layout: got {lse_layout!r}; must be one of {', '.join(LAYOUTS)}")
    values, logs = real_array(o_name, o), real_array(lse_name, lse)
    if values.ndim < dims.count(","):
        raise ValueError(f"{o_name}: got shape {values.shape}; must be {dims}")
    *batch, tokens, heads, _ = values.shape
    shapes = {"ht": (*batch, heads, tokens), "th": (*batch, tokens, heads)}
    if logs.shape != shapes[lse_layout]:
        hint = "".join(
            f"; it fits lse_layout={name!r}"
            for name, shape in shapes.items()
            if logs.shape == shape
        )
        raise ValueError(
            f"{lse_name}: got shape {logs.shape}; lse_layout={lse_layout!r} needs"
            f" {LAYOUTS[lse_layout]} = {shapes[lse_layout]}{hint}"
        )
    return values.astype(np.float64), to_or_from_th(logs.astype(np.float64), lse_layout)
