"""What decode is timed on: shapes, one for each bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from attngen.spec_attention import AttentionDecode
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
    options = _options(spec, shape, device)
    if not spec.paged:
        rows = (shape.batch, shape.seqlen_kv, shape.heads_kv)
        return (q, normal(*rows, spec.head_dim), normal(*rows, spec.head_dim_v)), options
    wide = -(-shape.seqlen_kv // PAGE_SIZE)
    pages = (shape.batch * wide, PAGE_SIZE, shape.heads_kv)
    table = torch.randperm(shape.batch * wide, generator=generator, device=device)
    lengths = torch.full((shape.batch,), shape.seqlen_kv, dtype=torch.int32, device=device)
    options |= {"block_table": table.int().view(shape.batch, wide), "seqlens_kv": lengths}
    return (q, normal(*pages, spec.head_dim), normal(*pages, spec.head_dim_v)), options


def _options(spec: AttentionDecode, shape: Shape, device: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if spec.window:
        options["window_size"] = (min(1024, shape.seqlen_kv // 4), 0)
    if spec.softcap:
        options["softcap"] = 30.0
    if spec.alibi:
        heads = torch.arange(1, shape.heads_q + 1, device=device, dtype=torch.float32)
        options["alibi_slopes"] = torch.exp2(-8.0 * heads / shape.heads_q)
    if spec.sinks:
        options["sinks"] = torch.zeros(shape.heads_q, device=device)
    return options
