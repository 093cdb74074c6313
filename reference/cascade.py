"""Cascade attention: keys in levels, of which the outer ones are shared by many sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import check_sinks, real_array
from attngen.reference.attention import attention
from attngen.reference.layouts import Lengths, cumulative, gather_pages
from attngen.reference.merge import State, merge_state
from attngen.reference.problem import Array


@dataclass(frozen=True)
class Level:
    """Keys of one level, packed, and which queries share them.

    Attributes:
        k: [total_kv, heads_kv, head_dim].
        v: [total_kv, heads_kv, head_dim_v].
        cu_q: int64 [groups + 1]: group g of this level is the query rows cu_q[g] to cu_q[g + 1].
        cu_kv: int64 [groups + 1]: the keys that group g shares.
    """

    k: Array
    v: Array
    cu_q: Lengths
    cu_kv: Lengths

    def group(self, row: int) -> int:
        """The group that query row `row` belongs to."""
        return int(np.searchsorted(self.cu_q, row, side="right")) - 1

    def keys(self, row: int) -> slice:
        """The keys that query row `row` shares."""
        g = self.group(row)
        return slice(int(self.cu_kv[g]), int(self.cu_kv[g + 1]))


def cascade_attention(
    q: ArrayLike,
    levels: Sequence[tuple[ArrayLike, ...]],
    *,
    sinks: ArrayLike | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    sm_scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: ArrayLike | None = None,
) -> State:
    """Attention of each query over the keys of all its levels, level by level, merged.

    A query's keys are those that its group has at each level, joined, outermost first; its sequence
    is its group at the last level. The result is that of `attention` over the joined keys, with the
    queries of a sequence aligned to the end of them: of L joined keys and n queries, query i stands
    at position i + L - n. Each level is attended to on its own, with the causal_offset that puts
    the same positions into the level's own count: L - n less the keys of the levels before it. So
    causal masks keys of the last level only, as long as a sequence has at least as many keys there
    as queries, and a window may end inside any level; both are exact however the lengths fall.

    Args:
        q: Any real dtype, [total_q, heads_q, head_dim].
        levels: Outermost first, one at least. Each is packed, (k, v, cu_seqlens_q, cu_seqlens_kv),
            or paged, (k_cache, v_cache, block_table, seqlens_kv, cu_seqlens_q), with shapes and
            dtypes as in `attention_varlen` and `attention_paged`. The groups of a level consist of
            whole groups of the level after it. A group may have no keys.
        sinks: As in `attention`; merged once, last.
        causal: As in `attention`, over the joined keys.
        window_size: As in `attention`, over the joined keys.
        sm_scale: As in `attention`.
        softcap: As in `attention`.
        alibi_slopes: [heads_q], as in `attention`, over the joined keys.

    Returns:
        (o, lse): float64 [total_q, heads_q, head_dim_v] and [heads_q, total_q], natural logarithm.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value, or a group of a level ends inside a
            group of the level after it.
    """
    queries = real_array("q", q, "total_q heads_q head_dim")
    if not len(levels):
        raise ValueError("levels: got none; must be one or more")
    parsed = [_level(n, level, len(queries)) for n, level in enumerate(levels)]
    _check_nesting(parsed)
    total_q, heads_q = queries.shape[:2]
    o = np.zeros((total_q, heads_q, parsed[-1].v.shape[2]))
    lse = np.full((heads_q, total_q), -np.inf)
    for rows in _sequence_rows(parsed[-1].cu_q):
        for level, offset in _offsets(parsed, rows):
            keys = level.keys(rows.start)
            o_l, lse_l = attention(
                queries[None, rows],
                level.k[None, keys],
                level.v[None, keys],
                causal=causal,
                causal_offset=offset,
                window_size=window_size,
                sm_scale=sm_scale,
                softcap=softcap,
                alibi_slopes=alibi_slopes,
            )
            o[rows], lse[:, rows] = merge_state(o[rows], lse[:, rows], o_l[0], lse_l[0])
    sink = np.broadcast_to(check_sinks(sinks, heads_q)[:, None], lse.shape)
    return merge_state(o, lse, np.zeros_like(o), np.where(sink == np.inf, np.nan, sink))


def _level(n: int, level: tuple[ArrayLike, ...], total_q: int) -> Level:
    if len(level) == 5:
        k, v, cu_kv = gather_pages(*level[:4])
        cu_q = cumulative(f"levels[{n}]: cu_seqlens_q", level[4], total_q, batch=len(cu_kv) - 1)
    elif len(level) == 4:
        k = real_array(f"levels[{n}]: k", level[0], "total_kv heads_kv head_dim")
        v = real_array(f"levels[{n}]: v", level[1], "total_kv heads_kv head_dim_v")
        cu_q = cumulative(f"levels[{n}]: cu_seqlens_q", level[2], total_q)
        cu_kv = cumulative(f"levels[{n}]: cu_seqlens_kv", level[3], len(k), batch=len(cu_q) - 1)
    else:
        raise ValueError(
            f"levels[{n}]: got {len(level)} entries; must be (k, v, cu_seqlens_q, cu_seqlens_kv) or"
            " (k_cache, v_cache, block_table, seqlens_kv, cu_seqlens_q)"
        )
    if cu_q[-1] != total_q:
        raise ValueError(
            f"levels[{n}]: cu_seqlens_q ends at {cu_q[-1]}; must be total_q = {total_q}"
        )
    return Level(k, v, cu_q, cu_kv)


def _check_nesting(levels: list[Level]) -> None:
    for n, (outer, inner) in enumerate(pairwise(levels)):
        inside = np.setdiff1d(outer.cu_q, inner.cu_q)
        if len(inside):
            raise ValueError(
                f"levels[{n}]: a group ends at query row {inside[0]}, inside a group of"
                f" levels[{n + 1}]; each group must consist of whole groups of the next level"
            )


def _sequence_rows(cu_q: Lengths) -> Iterator[slice]:
    for start, stop in pairwise(cu_q):
        if start < stop:
            yield slice(int(start), int(stop))


def _offsets(levels: list[Level], rows: slice) -> Iterator[tuple[Level, int]]:
    """Each level with the position of the sequence's query 0 among that level's keys."""
    lengths = [len(range(*level.keys(rows.start).indices(len(level.k)))) for level in levels]
    first = sum(lengths) - (rows.stop - rows.start)
    for level, length in zip(levels, lengths, strict=True):
        yield level, first
        first -= length
