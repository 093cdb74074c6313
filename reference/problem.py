"""The problem that checked arguments make: `Problem`, and one head of it, `Head`.

A `Head` is two-dimensional and float64, so that the other modules read like the formulas. It is cut
out of the problem one at a time, and its query rows come in blocks, so that no more than one block
of one head's scores ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attngen.reference.rounding import F64

Array = NDArray[Any]
Bool = NDArray[np.bool_]

# Scores held at once for one head: 8 MiB of float64.
SCORES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Head:
    """One query head of one batch entry, with the options that apply to it.

    Attributes:
        q: float64 [seqlen_q, head_dim].
        k: float64 [seqlen_kv, head_dim].
        v: float64 [seqlen_kv, head_dim_v].
        causal: Whether query i sees only keys j <= i + offset.
        offset: Position of query 0 among the keys.
        window: Keys seen before and after the own position; -1 is unbounded.
        scale: Factor of the dot products.
        softcap: Bound of the scores, or None.
        slope: ALiBi slope, or None.
        bias: [seqlen_q, seqlen_kv] in any real dtype, or None.
        mask: bool [seqlen_q, seqlen_kv], True = visible, or None.
        sink: Logit of the sink in natural units; -inf means none.
    """

    q: F64
    k: F64
    v: F64
    causal: bool
    offset: int
    window: tuple[int, int]
    scale: float
    softcap: float | None
    slope: float | None
    bias: Array | None
    mask: Bool | None
    sink: float

    def in_float32(self) -> Head:
        """The same head with q and k in float32, so that its scores are."""
        return replace(self, q=self.q.astype(np.float32), k=self.k.astype(np.float32))

    def positions(self, rows: slice) -> NDArray[np.int64]:
        """Position among the keys of each query, i + offset; [rows, 1]."""
        return np.arange(rows.start, rows.stop)[:, None] + self.offset

    @cached_property
    def finite_v(self) -> F64:
        """`v` with 0 for every infinity and NaN, so that a weight of 0 makes nothing of them."""
        return np.where(np.isfinite(self.v), self.v, 0.0)

    def row_blocks(self) -> Iterator[slice]:
        """Slices of query rows, each with at most SCORES_AT_ONCE scores (or one row)."""
        rows = max(1, SCORES_AT_ONCE // max(1, len(self.k)))
        for start in range(0, len(self.q), rows):
            yield slice(start, min(start + rows, len(self.q)))

    def all_keys(self) -> slice:
        """Every key."""
        return slice(0, len(self.k))

    def key_blocks(self, block_n: int) -> Iterator[slice]:
        """Slices of `block_n` keys, the last one shorter."""
        for start in range(0, len(self.k), block_n):
            yield slice(start, min(start + block_n, len(self.k)))


@dataclass(frozen=True)
class Problem:
    """Checked arguments of attention: q, k, v as given, every option with its full shape.

    Attributes:
        q: [batch, seqlen_q, heads_q, head_dim].
        k: [batch, seqlen_kv, heads_kv, head_dim].
        v: [batch, seqlen_kv, heads_kv, head_dim_v].
        causal: As in `attention`.
        offset: int64 [batch].
        window: (left, right).
        scale: Finite.
        softcap: Positive, or None.
        sinks: float64 [heads_q]; -inf means none.
        slopes: float64 [batch, heads_q], or None.
        bias: View of shape [batch, heads_q, seqlen_q, seqlen_kv], or None.
        mask: bool view of the same shape, or None.
    """

    q: Array
    k: Array
    v: Array
    causal: bool
    offset: NDArray[np.int64]
    window: tuple[int, int]
    scale: float
    softcap: float | None
    sinks: F64
    slopes: F64 | None
    bias: Array | None
    mask: Bool | None

    @property
    def o_shape(self) -> tuple[int, int, int, int]:
        """Shape of o: [batch, seqlen_q, heads_q, head_dim_v]."""
        batch, seqlen_q, heads_q, _ = self.q.shape
        return batch, seqlen_q, heads_q, self.v.shape[3]

    @property
    def lse_shape(self) -> tuple[int, int, int]:
        """Shape of lse: [batch, heads_q, seqlen_q]."""
        batch, seqlen_q, heads_q, _ = self.q.shape
        return batch, heads_q, seqlen_q

    def heads(self) -> Iterator[tuple[int, int, Head]]:
        """Every (batch entry, query head) with its `Head`."""
        for b in range(self.q.shape[0]):
            for h in range(self.q.shape[2]):
                yield b, h, self.head(b, h)

    def head(self, b: int, h: int) -> Head:
        """Query head `h` of batch entry `b`; it reads KV head h // (heads_q // heads_kv)."""
        h_kv = h // (self.q.shape[2] // self.k.shape[2])
        return Head(
            q=self.q[b, :, h].astype(np.float64),
            k=self.k[b, :, h_kv].astype(np.float64),
            v=self.v[b, :, h_kv].astype(np.float64),
            causal=self.causal,
            offset=int(self.offset[b]),
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            slope=None if self.slopes is None else float(self.slopes[b, h]),
            bias=None if self.bias is None else self.bias[b, h],
            mask=None if self.mask is None else self.mask[b, h],
            sink=float(self.sinks[h]),
        )
