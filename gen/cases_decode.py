"""The inputs that decode kernels are verified on: splits, lengths of all kinds, groups, pages."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attngen.cases_attention import FAMILIES, Floats, feature_options
from attngen.spec_attention import AttentionDecode
from attngen.variant import Variant


@dataclass(frozen=True)
class Case:
    """One call of a decode kernel.

    Attributes:
        name: what it is about.
        lengths: keys of each sequence; the tensors are as long as the longest and three more.
        seqlen_q: queries of each sequence.
        heads_q: query heads.
        heads_kv: key and value heads.
        family: how q, k and v are drawn; a key of FAMILIES.
        page_size: keys a page, where the kernel takes pages.
        by_heads: is the cache laid out with heads before rows?
        splits: num_splits or split_size, where the launcher is not to choose.
        options: sm_scale, causal_offset, window_size and softcap, where they are not the usual.
    """

    name: str
    lengths: tuple[int, ...]
    seqlen_q: int = 1
    heads_q: int = 6
    heads_kv: int = 2
    family: str = "normal"
    page_size: int = 16
    by_heads: bool = False
    splits: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def num_splits(self) -> int:
        """The most splits that a row's keys can be in; the launcher chooses no more than 256."""
        longest = max(self.lengths) + 3
        if "split_size" in self.splits:
            return -(-longest // self.splits["split_size"])
        return self.splits.get("num_splits", min(256, longest))


def cases(variant: Variant, *, long: bool = False) -> Iterator[Case]:
    """The cases for a kernel; `long` adds the lengths that only a GPU gets through."""
    n = variant.config.block_n
    one, three = {"num_splits": 1}, {"num_splits": 3}
    yield Case("one key", (1,), splits=one)
    yield Case("whole blocks", (2 * n,), splits=one)
    yield Case("a block a split", (3 * n,), splits=three)
    yield Case("tails", (3 * n + 5, n - 1), splits={"num_splits": 2}, page_size=12)
    yield Case("more splits than blocks", (n + 1, 2), splits={"num_splits": 20})
    yield Case("a key a split", (n + 1, 2), splits={"split_size": 1})
    yield Case("splits of a fixed size", (3 * n + 5, 7, 0), splits={"split_size": 2 * n})
    yield Case("splits that cut blocks", (3, 2 * n + 5), splits={"split_size": n + 3}, page_size=1)
    yield Case("splits that are chosen", (9 * n, 5 * n + 1), page_size=192)
    yield Case("a sequence without keys", (0, n), splits=three)
    yield Case("no keys", (0, 0), splits={"split_size": 1})
    yield Case("a query a head", (n + 9, 3), heads_q=3, heads_kv=3, by_heads=True)
    yield Case("rows of three tiles", (n + 9,), 2, heads_q=20, heads_kv=1, splits=three)
    yield Case("several queries", (2 * n + 9, 2), 4, heads_q=4, splits=three, by_heads=True)
    yield Case("16 sequences", (n + 3,) * 16, 4, heads_q=2, heads_kv=1, splits=three)
    yield Case("scale 10", (2 * n + 3,), family="large", splits=three)
    yield Case("equal scores", (2 * n + 3,), family="equal", splits=three)
    yield Case("a late outlier", (2 * n + 3,), family="outlier", splits=three)
    yield Case("very negative scores", (2 * n + 3,), 2, family="negative", splits=three)
    yield Case("negative sm_scale", (n + 3,), splits=three, options={"sm_scale": -0.3})
    yield Case("zero sm_scale", (n + 3,), splits=three, options={"sm_scale": 0.0})
    if variant.spec.softcap:
        for cap in (30.0, 50.0):
            options = {"softcap": cap}
            yield Case(f"softcap {cap:g}", (n + 3,) * 16, 4, 2, 1, splits=three, options=options)
    yield from _placed(variant.spec, n)
    if long:
        yield Case("long rows", (8192, 5000), splits={"num_splits": 16})
        yield Case("long rows, chosen", (8192, 100))


def _placed(spec: AttentionDecode, n: int) -> Iterator[Case]:
    """Cases of the features for which a query's position matters."""
    if spec.causal or spec.window or spec.alibi:
        offsets = np.array([-2, n - 1, 3 * n], dtype=np.int64)
        for name, offset in (("top-left", 0), ("far off", 10**6), ("a sequence", offsets)):
            options = {"causal_offset": offset}
            yield Case(f"an offset: {name}", (n + 7, 2 * n, 2 * n), 3, options=options)
    if spec.window:
        for window in ((-1, 3), (n + 3, -1), (0, 0), (2 * n + 1, 0)):
            for splits in ({"num_splits": 2}, {"split_size": n}):
                yield Case(
                    f"window {window}, {splits}",
                    (4 * n + 3, n),
                    3,
                    splits=splits,
                    options={"window_size": window},
                )


def inputs(variant: Variant, case: Case) -> tuple[Floats, Floats, Floats, dict[str, Any]]:
    """q, k and v in float32 as [batch, ...], and the options of the call, for one case.

    Rows of k and v past a sequence's length are NaN. The same variant and case give the same
    numbers in every process.
    """
    rng = np.random.default_rng(zlib.crc32(f"{variant.name} {case.name}".encode()))
    spec: AttentionDecode = variant.spec
    batch, rows = len(case.lengths), max(case.lengths) + 3
    drawn = FAMILIES[case.family](
        rng,
        (batch, case.seqlen_q, case.heads_q, spec.head_dim),
        (batch, rows, case.heads_kv, spec.head_dim),
        (batch, rows, case.heads_kv, spec.head_dim_v),
    )
    q, k, v = (x.astype(np.float32) for x in drawn)
    for b, length in enumerate(case.lengths):
        k[b, length:], v[b, length:] = np.nan, np.nan
    scores = (batch, case.heads_q, case.seqlen_q, rows)
    return q, k, v, feature_options(rng, variant, scores) | case.options


def paged(
    rng: np.random.Generator, case: Case, k: Floats, v: Floats
) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """The keys and values in shuffled pages amid pages of NaN, and the block table.

    Entries of the table past a sequence's last key are junk.
    """
    size, batch = case.page_size, len(case.lengths)
    wide = -(-k.shape[1] // size)
    pages = rng.permutation(batch * wide + 3)
    table = np.full((batch, wide), 2**30, dtype=np.int32)
    caches = [np.full((len(pages), size, *x.shape[2:]), np.nan, dtype=np.float32) for x in (k, v)]
    for b, length in enumerate(case.lengths):
        for i in range(-(-length // size)):
            table[b, i] = pages[b * wide + i]
            for cache, x in zip(caches, (k, v), strict=True):
                rows = x[b, i * size : min((i + 1) * size, length)]
                cache[table[b, i], : len(rows)] = rows
    return caches[0], caches[1], table
