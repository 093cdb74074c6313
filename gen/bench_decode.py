"""Decode beside what torch brings: one query a sequence against many keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attngen.bench_cell import Cell, built
from attngen.spec_attention import AttentionDecode
from attngen.timing import TORCH_DTYPES, Call


@dataclass(frozen=True)
class Shape:
    """One step of decode: every sequence has the same number of keys."""

    batch: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int

    def bytes_(self, element: int) -> float:
        """What has to be read and written once: k and v, q and o."""
        kv = 2 * self.seqlen_kv * self.heads_kv
        return float(self.batch * (kv + 2 * self.heads_q) * self.head_dim * element)


SHAPES = (
    Shape(1, 131072, 32, 8, 128),
    Shape(1, 8192, 32, 8, 128),
    Shape(16, 8192, 32, 8, 128),
    Shape(64, 8192, 32, 8, 128),
    Shape(256, 1024, 32, 8, 128),
    Shape(1, 131072, 32, 32, 128),
    Shape(16, 8192, 32, 32, 128),
    Shape(256, 1024, 32, 32, 128),
)
PAGE_SIZES = (16, 64)


def cells(dtypes: Iterable[str], backend: str) -> Iterator[Cell]:
    """Every shape in each dtype, dense and in pages of each size: TB/s."""
    for shape in SHAPES:
        for dtype in dtypes:
            for page_size in (None, *PAGE_SIZES):
                yield _cell(shape, dtype, page_size, backend)


def _cell(shape: Shape, dtype: str, page_size: int | None, backend: str) -> Cell:
    spec = AttentionDecode(head_dim=shape.head_dim, dtype=dtype, paged=page_size is not None)
    like: dict[str, Any] = {"device": "cuda", "dtype": TORCH_DTYPES[dtype]}
    q = torch.randn((shape.batch, 1, shape.heads_q, shape.head_dim), **like)
    rows = (shape.batch, shape.seqlen_kv, shape.heads_kv, shape.head_dim)
    k, v = torch.randn(rows, **like), torch.randn(rows, **like)
    caches, layout = ((k, v), {}) if page_size is None else _paged(k, v, page_size)
    return Cell(
        spec,
        vars(shape) | ({} if page_size is None else {"page_size": page_size}),
        "tbps",
        shape.bytes_(q.element_size()),
        kernels=built(
            spec, backend, lambda module: lambda: module.attention_decode(q, *caches, **layout)
        ),
        peers=lambda: dict(_peers(q, k, v)),
        bounds={"sum of k and v": lambda: (k.sum(), v.sum())},
    )


def _paged(
    k: torch.Tensor, v: torch.Tensor, page_size: int
) -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]:
    """The same keys and values in shuffled pages."""
    batch, seqlen_kv, heads_kv, head_dim = k.shape
    wide = seqlen_kv // page_size
    table = torch.randperm(batch * wide, device=k.device).view(batch, wide)
    caches = []
    for x in (k, v):
        cache = torch.empty_like(x).view(batch * wide, page_size, heads_kv, head_dim)
        cache[table.flatten()] = x.view(cache.shape)
        caches.append(cache)
    lengths = torch.full((batch,), seqlen_kv, dtype=torch.int32, device=k.device)
    return (caches[0], caches[1]), {"block_table": table.int(), "seqlens_kv": lengths}


def _peers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Iterator[tuple[str, Call]]:
    """What torch brings for a dense cache, on [batch, heads, seqlen, d]."""
    views = (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    grouped = q.shape[2] != k.shape[2]

    def sdpa(backend: SDPBackend) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*views, enable_gqa=grouped)

        return call

    yield "fa2", sdpa(SDPBackend.FLASH_ATTENTION)
    yield "cudnn", sdpa(SDPBackend.CUDNN_ATTENTION)
