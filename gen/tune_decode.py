"""What decode is timed on: shapes, one for each bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from attngen.spec_attention import AttentionDecode
from attngen.tune_attention import features
from attngen.verify_attention import TORCH_DTYPES

PAGE_SIZE = 16


@dataclass(frozen=True)
class Shape:
    """The sizes of one step, of one query a sequence."""

    batch: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int


SHAPES = (
    Shape(1, 8192, 32, 8),
    Shape(1, 131072, 32, 8),
    Shape(16, 8192, 32, 8),
    Shape(64, 8192, 32, 8),
    Shape(256, 1024, 32, 8),
    Shape(16, 4096, 32, 32),
)


def shapes(spec: AttentionDecode) -> Iterator[Shape]:
    """Few sequences of many keys, many of few, and a KV head for every query head."""
    yield from SHAPES


def sizes(shape: Shape) -> dict[str, int]:
    """What the bucket is made of."""
    heads = shape.batch * shape.heads_kv
    return {"seqlen_kv": shape.seqlen_kv, "heads": heads}


def inputs(
    spec: AttentionDecode, shape: Shape, device: str
) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """Unit normal q, k and v, in shuffled pages where the kernel takes some."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = TORCH_DTYPES[spec.dtype]

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device, dtype=dtype)

    q = normal(shape.batch, 1, shape.heads_q, spec.head_dim)
    options = features(spec, shape, device)
    if not spec.paged:
        rows = (shape.batch, shape.seqlen_kv, shape.heads_kv)
        return (q, normal(*rows, spec.head_dim), normal(*rows, spec.head_dim_v)), options
    table, lengths = shuffled_pages(shape.batch, shape.seqlen_kv, device)
    pages = (table.numel(), PAGE_SIZE, shape.heads_kv)
    options |= {"block_table": table, "seqlens_kv": lengths}
    return (q, normal(*pages, spec.head_dim), normal(*pages, spec.head_dim_v)), options


def shuffled_pages(batch: int, seqlen: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A block table of full sequences in pages of PAGE_SIZE, and the sequences' lengths."""
    generator = torch.Generator(device).manual_seed(1)
    wide = -(-seqlen // PAGE_SIZE)
    table = torch.randperm(batch * wide, generator=generator, device=device).int()
    lengths = torch.full((batch,), seqlen, dtype=torch.int32, device=device)
    return table.view(batch, wide), lengths
