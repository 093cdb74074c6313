"""The inputs that varlen and paged attention are verified on: lengths, pages, layouts of caches."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attngen.cases_attention import FAMILIES, Floats, feature_options, takes_offset
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

Indices = NDArray[np.int32]


@dataclass(frozen=True)
class PackedCase:
    """One call of a varlen or paged kernel.

    Attributes:
        name: what it is about.
        queries: of each sequence.
        keys: of each sequence.
        heads_q: query heads.
        heads_kv: key and value heads.
        family: how q, k and v are drawn; a key of `cases_attention.FAMILIES`.
        trailing: rows of q after the last sequence.
        fused: are q, k and v views of one buffer (varlen)?
        wide: are the index tensors int64?
        page_size: keys a page (paged).
        cache: how the pages lie in memory (paged); a key of `verify_layouts.CACHES`.
        options: sm_scale, causal_offset and softcap, where they are not the usual ones.
    """

    name: str
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    heads_q: int = 2
    heads_kv: int = 1
    family: str = "normal"
    trailing: int = 0
    fused: bool = False
    wide: bool = False
    page_size: int = 16
    cache: str = "NHD"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def cu_seqlens_q(self) -> Indices:
        """[batch + 1]."""
        return np.array([*accumulate(self.queries, initial=0)], dtype=np.int32)

    @property
    def cu_seqlens_kv(self) -> Indices:
        """[batch + 1]."""
        return np.array([*accumulate(self.keys, initial=0)], dtype=np.int32)


def varlen_cases(variant: Variant, *, long: bool = False) -> Iterator[PackedCase]:
    """The cases for a varlen kernel; `long` adds the lengths that only a GPU gets through."""
    m, n = variant.config.block_m, variant.config.block_n
    yield from _cases(variant)
    yield PackedCase("views of one buffer, groups of 3", (19, 1), (19, 1), 6, 2, fused=True)
    yield PackedCase("scale 0.1", (m + 3, 3), (m + n, 9), family="small")
    yield PackedCase("scale 10", (m + 3, 3), (m + n, 9), family="large")
    yield PackedCase("a late outlier", (17, 3), (2 * n, n + 3), family="outlier")
    yield PackedCase("very negative scores", (17, 3), (2 * n, n + 3), family="negative")
    yield PackedCase("negative sm_scale", (17,), (n + 3,), options={"sm_scale": -0.3})
    yield PackedCase("zero sm_scale", (17,), (n + 3,), options={"sm_scale": 0.0})
    if long:
        yield PackedCase(
            "many sequences", (*range(0, 200, 5), 1000), (*range(300, 100, -5), 3000), 4, 2
        )


def paged_cases(variant: Variant, *, long: bool = False) -> Iterator[PackedCase]:
    """The cases for a paged kernel; `long` adds the lengths that only a GPU gets through."""
    n = variant.config.block_n
    yield from _cases(variant)
    for page_size in (1, 12, 192):
        keys = (n + 1, page_size, 2 * n + 5)
        yield PackedCase(f"pages of {page_size}", (5, 1, 3), keys, 2, 1, page_size=page_size)
    for cache in ("HND", "interleaved", "v on its own"):
        yield PackedCase(
            f"a cache {cache}", (3, 9), (n + 5, 2 * n), 4, 2, page_size=12, cache=cache
        )
    yield PackedCase("one query each", (1,) * 5, (1, n, n + 1, 0, 2 * n + 3), 6, 2)
    yield PackedCase("negative sm_scale", (17,), (n + 3,), options={"sm_scale": -0.3})
    if long:
        yield PackedCase(
            "many sequences", (*range(0, 200, 5), 1000), (*range(300, 100, -5), 3000), 4, 2
        )


def _cases(variant: Variant) -> Iterator[PackedCase]:
    """Lengths, and what a sequence has of its own."""
    m, n = variant.config.block_m, variant.config.block_n
    spec: AttentionFwd = variant.spec
    yield PackedCase("one query, one key", (1,), (1,))
    yield PackedCase("around a tile", (m - 1, m, m + 1), (2 * n, m + n + 1, 2 * n - 1))
    yield PackedCase("more queries than keys", (n + 9, 3, 17), (5, 2, 16))
    yield PackedCase("sequences of length 0", (0, 5, 0, 3, 0), (4, 0, 0, n + 3, 2))
    yield PackedCase("no queries", (0, 0, 0), (3, 0, 5))
    yield PackedCase("no keys", (3, 1), (0, 0))
    yield PackedCase("no sequences", (), (), trailing=3)
    yield PackedCase("rows after the last sequence", (5, 7), (9, 3), trailing=m + 3)
    yield PackedCase("one long, many short", (1, 1, m + 5, 1, 1), (n + 3, 1, m + n, 2 * n, 7))
    yield PackedCase("one request misses the prefix cache", (9, 17, 5), (n + 3, 0, 2 * n))
    chunks, cached = (9, 17, m + 2), (n, 0, 2 * n + 5)
    keys = tuple(chunk + prefix for chunk, prefix in zip(chunks, cached, strict=True))
    yield PackedCase("chunks on a cached prefix, one has none", chunks, keys, 6, 2)
    yield PackedCase("int64 lengths and pages", (3, 18), (n + 5, 20), wide=True)
    if spec.softcap:
        yield PackedCase("softcap 30", (64, 9), (n + 3, 2 * n), options={"softcap": 30.0})
        yield PackedCase("softcap 50", (3, 66), (n + 3, 2 * n), options={"softcap": 50.0})
    if takes_offset(spec):
        offset = {"causal_offset": 2}
        yield PackedCase("one offset for all", (5, n + 3), (9, n), options=offset)
        offsets = {"causal_offset": np.array([-4, n - 1, 10**6], dtype=np.int64)}
        yield PackedCase("an offset a sequence", (17, 5, 3), (n + 3, 2 * n, 9), options=offsets)
    if spec.causal:
        seen = {"causal_offset": 2}
        yield PackedCase(
            "keys that no query sees hold NaN", (3, 17), (n, 2 * n), 2, 1, options=seen
        )
    if spec.alibi:
        slopes = {"alibi_slopes": np.array([[0.5, 0.1], [0.25, -0.3]], dtype=np.float32)}
        yield PackedCase("slopes a sequence", (3, 17), (n, 20), options=slopes)


def packed_inputs(
    variant: Variant, case: PackedCase
) -> tuple[Floats, Floats, Floats, dict[str, Any]]:
    """Draw q [total_q, ...], k and v [total_kv, ...] in float32, not yet rounded, and options.

    The same variant and case give the same numbers in every process.
    """
    rng = np.random.default_rng(zlib.crc32(f"{variant.name} {case.name}".encode()))
    spec: AttentionFwd = variant.spec
    total_q, total_kv = sum(case.queries) + case.trailing, sum(case.keys)
    shapes = (
        (1, total_q, case.heads_q, spec.head_dim),
        (1, total_kv, case.heads_kv, spec.head_dim),
        (1, total_kv, case.heads_kv, spec.head_dim_v),
    )
    q, k, v = (x[0].astype(np.float32) for x in FAMILIES[case.family](rng, *shapes))
    if case.name == "keys that no query sees hold NaN":
        for rows, first, keys in zip(case.queries, case.cu_seqlens_kv, case.keys, strict=False):
            unseen = slice(first + rows + case.options["causal_offset"], first + keys)
            k[unseen], v[unseen] = np.nan, np.nan
    options = feature_options(rng, variant, (len(case.queries), case.heads_q, 0, 0))
    return q, k, v, {**options, **case.options}
