"""The recurrence with part of its state in a narrow type: what has to be float32, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import check_block, real_array
from attngen.reference.merge import State
from attngen.reference.problem import Array
from attngen.reference.rounding import format_of, round_to


@dataclass(frozen=True)
class NarrowState:
    """Types of the state and of P; everything is computed in float32 and then rounded to them.

    Attributes:
        m: Type of the running maximum.
        l: Type of the running sum.
        acc: Type of the accumulator.
        p: Type of P as it enters the product with v.
    """

    m: str = "fp32"
    l: str = "fp32"
    acc: str = "fp32"
    p: str = "fp32"

    def __post_init__(self) -> None:
        """Check the names."""
        for argument in ("m", "l", "acc", "p"):
            format_of(getattr(self, argument), argument)


def narrow_recurrence(
    s: ArrayLike, v: ArrayLike, *, block_n: int, state: NarrowState | None = None
) -> State:
    """One row's streaming attention with (m, l, acc) kept in the types that `state` names.

    m in fp16 becomes infinite above 65504, and below that its rounding lets exp(s - m) exceed 1 by
    so much that a narrow P overflows; l in fp16 stops growing once a term is below half its unit in
    the last place; acc in fp16 overflows although the mean it stands for is small.

    Args:
        s: Any real dtype, [seqlen_kv]: scores in natural units.
        v: Any real dtype, [seqlen_kv, head_dim_v].
        block_n: Keys a block, 1 or more.
        state: Types; default all float32.

    Returns:
        (o, lse): float64 [head_dim_v] and [].

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape, or a type's name is unknown.
    """
    types = state or NarrowState()
    block_n = check_block("block_n", block_n)
    scores = real_array("s", s, "seqlen_kv").astype(np.float32)
    values = real_array("v", v, "seqlen_kv head_dim_v").astype(np.float32)
    if len(values) != len(scores):
        raise ValueError(f"v: got seqlen_kv {len(values)}; must be that of s, {len(scores)}")
    m, l = np.full(1, -np.inf, dtype=np.float32), np.zeros(1, dtype=np.float32)
    acc = np.zeros(values.shape[1], dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(scores), block_n):
            s_b, v_b = scores[start : start + block_n], values[start : start + block_n]
            m_new = _rounded(np.maximum(m, s_b.max()), types.m)
            p, alpha = np.exp(s_b - m_new), np.exp(m - m_new)
            l = _rounded(alpha * l + p.sum(), types.l)
            acc = _rounded(alpha * acc + round_to(p, types.p) @ v_b, types.acc)
            m = m_new
        o, lse = acc / l, (m + np.log(l))[0]
    return o.astype(np.float64), lse.astype(np.float64)


def _rounded(x: Array, dtype: str) -> Array:
    return round_to(x, dtype).astype(np.float32)
