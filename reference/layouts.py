"""Attention over sequences of many lengths: packed in a row, or in the pages of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attngen.reference.arguments import (
    Attn,
    check_bias,
    check_lengths,
    check_mask,
    check_offset,
    check_slopes,
    real_array,
    resolve,
)
from attngen.reference.attention import attention
from attngen.reference.merge import State
from attngen.reference.problem import Array

Lengths = NDArray[np.int64]


def attention_varlen(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    cu_seqlens_q: ArrayLike,
    cu_seqlens_kv: ArrayLike,
    **attn: Unpack[Attn],
) -> State:
    """Attention within each of `batch` sequences that are packed one after the other.

    Args:
        q: Any real dtype, [total_q, heads_q, head_dim].
        k: Any real dtype, [total_kv, heads_kv, head_dim].
        v: Any real dtype, [total_kv, heads_kv, head_dim_v].
        cu_seqlens_q: Integers [batch + 1], 0 first, rising: sequence b holds the query rows from
            cu_seqlens_q[b] up to cu_seqlens_q[b + 1]. Rows after the last sequence are empty rows.
        cu_seqlens_kv: Integers [batch + 1], the same for the keys.
        **attn: The options of `attention`. `causal_offset` and `alibi_slopes` may have one entry a
            sequence; `bias` and `mask` broadcast to [batch, heads_q, max_seqlen_q, max_seqlen_kv],
            of which each sequence takes its top left corner.

    Returns:
        (o, lse): float64 [total_q, heads_q, head_dim_v] and [heads_q, total_q], natural logarithm.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.
    """
    qs = real_array("q", q, "total_q heads_q head_dim")
    ks = real_array("k", k, "total_kv heads_kv head_dim")
    vs = real_array("v", v, "total_kv heads_kv head_dim_v")
    if len(ks) != len(vs):
        raise ValueError(f"v: got total_kv {len(vs)}; must be that of k, {len(ks)}")
    cu_q = cumulative("cu_seqlens_q", cu_seqlens_q, len(qs))
    cu_kv = cumulative("cu_seqlens_kv", cu_seqlens_kv, len(ks), batch=len(cu_q) - 1)
    o = np.zeros((*qs.shape[:2], vs.shape[2]))
    lse = np.full(qs.shape[1::-1], -np.inf)
    resolve(qs[None, :0], ks[None, :0], vs[None, :0])  # heads and head_dim, even of no sequences
    for rows, keys, options in _sequences(cu_q, cu_kv, qs.shape[1], attn):
        o_b, lse_b = attention(qs[None, rows], ks[None, keys], vs[None, keys], **options)
        o[rows], lse[:, rows] = o_b[0], lse_b[0]
    return o, lse


def attention_paged(
    q: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    block_table: ArrayLike,
    seqlens_kv: ArrayLike,
    *,
    cu_seqlens_q: ArrayLike | None = None,
    **attn: Unpack[Attn],
) -> State:
    """Attention of each sequence over its keys and values in the pages of a cache.

    Token t of sequence b lies in slot t % page_size of page block_table[b, t // page_size]. Slots
    past a sequence's length, and pages that no sequence uses, are never looked at.

    Args:
        q: Any real dtype, [total_q, heads_q, head_dim].
        k_cache: Any real dtype, [num_pages, page_size, heads_kv, head_dim].
        v_cache: Any real dtype, [num_pages, page_size, heads_kv, head_dim_v].
        block_table: Integers [batch, max_pages].
        seqlens_kv: Integers [batch], keys of each sequence.
        cu_seqlens_q: Integers [batch + 1] as in `attention_varlen`; None means one query each.
        **attn: The options of `attention`, as in `attention_varlen`.

    Returns:
        (o, lse): float64 [total_q, heads_q, head_dim_v] and [heads_q, total_q], natural logarithm.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.
    """
    k, v, cu_kv = gather_pages(k_cache, v_cache, block_table, seqlens_kv)
    if cu_seqlens_q is None:
        cu_seqlens_q = np.arange(len(cu_kv))
    return attention_varlen(q, k, v, cu_seqlens_q, cu_kv, **attn)


def gather_pages(
    k_cache: ArrayLike, v_cache: ArrayLike, block_table: ArrayLike, seqlens_kv: ArrayLike
) -> tuple[Array, Array, Lengths]:
    """Copy the tokens of each sequence out of their pages, packed one sequence after the other.

    Args:
        k_cache: As in `attention_paged`.
        v_cache: As in `attention_paged`.
        block_table: As in `attention_paged`.
        seqlens_kv: As in `attention_paged`.

    Returns:
        (k, v, cu_seqlens_kv): [total_kv, heads_kv, head_dim], [total_kv, heads_kv, head_dim_v] and
        int64 [batch + 1].

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.
    """
    k_pages = real_array("k_cache", k_cache, "num_pages page_size heads_kv head_dim")
    v_pages = real_array("v_cache", v_cache, "num_pages page_size heads_kv head_dim_v")
    num_pages, page_size = k_pages.shape[:2]
    if page_size < 1:
        raise ValueError(f"k_cache: got page_size {page_size}; must be 1 or more")
    if v_pages.shape[:3] != k_pages.shape[:3]:
        raise ValueError(
            f"v_cache: got (num_pages, page_size, heads_kv) = {v_pages.shape[:3]}; must be that of"
            f" k_cache, {k_pages.shape[:3]}"
        )
    table = _check_table(block_table)
    lengths = check_lengths("seqlens_kv", seqlens_kv, len(table))
    capacity = table.shape[1] * page_size
    if np.any((lengths < 0) | (lengths > capacity)):
        raise ValueError(
            f"seqlens_kv: got {lengths.tolist()}; each must be from 0 to max_pages * page_size ="
            f" {capacity}"
        )
    cu_seqlens_kv = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    page, slot = np.zeros((2, cu_seqlens_kv[-1]), dtype=np.int64)
    for b, length in enumerate(lengths):
        token, packed = np.arange(length), slice(cu_seqlens_kv[b], cu_seqlens_kv[b + 1])
        page[packed], slot[packed] = table[b, token // page_size], token % page_size
        if np.any((page[packed] < 0) | (page[packed] >= num_pages)):
            raise ValueError(
                f"block_table: got {table[b].tolist()} for sequence {b} of {length} tokens; a page"
                f" in use must be from 0 to num_pages - 1 = {num_pages - 1}"
            )
    return k_pages[page, slot], v_pages[page, slot], cu_seqlens_kv


def _check_table(block_table: ArrayLike) -> Lengths:
    table = np.asarray(block_table)
    if table.dtype.kind not in "iu":
        raise TypeError(f"block_table: got dtype {table.dtype}; must be an integer type")
    if table.ndim != 2:
        raise ValueError(f"block_table: got shape {table.shape}; must be [batch, max_pages]")
    return table.astype(np.int64)


def cumulative(name: str, x: ArrayLike, total: int, batch: int | None = None) -> Lengths:
    """Cumulative lengths as int64 [batch + 1]: 0 first, never falling, at most `total`."""
    cu = check_lengths(name, x, None if batch is None else batch + 1)
    if not len(cu) or cu[0] != 0 or np.any(np.diff(cu) < 0) or cu[-1] > total:
        raise ValueError(
            f"{name}: got {cu.tolist()}; must start at 0, never fall and end at {total} or below"
        )
    return cu


def _sequences(
    cu_q: Lengths, cu_kv: Lengths, heads_q: int, attn: Attn
) -> Iterator[tuple[slice, slice, Attn]]:
    """Each sequence's query rows, its keys, and its part of the options."""
    len_q, len_kv = np.diff(cu_q), np.diff(cu_kv)
    batch = len(len_q)
    offset = check_offset(attn.get("causal_offset"), len_kv - len_q)
    slopes = check_slopes(attn.get("alibi_slopes"), batch, heads_q)
    shape = (batch, heads_q, int(len_q.max(initial=0)), int(len_kv.max(initial=0)))
    bias, mask = check_bias(attn.get("bias"), shape), check_mask(attn.get("mask"), shape)
    for b in range(batch):
        one = attn.copy()
        one["causal_offset"] = int(offset[b])
        one["alibi_slopes"] = None if slopes is None else slopes[b]
        corner = (slice(b, b + 1), slice(None), slice(len_q[b]), slice(len_kv[b]))
        one["bias"] = None if bias is None else bias[corner]
        one["mask"] = None if mask is None else mask[corner]
        yield slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1]), one
