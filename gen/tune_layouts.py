"""What packed and paged attention are timed on: shapes, one a bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from attngen.spec_attention import AttentionPaged, AttentionVarlen
from attngen.tune_attention import Shape, features
from attngen.tune_decode import PAGE_SIZE, shuffled_pages
from attngen.verify_attention import TORCH_DTYPES

SHAPES = (
    Shape(64, 256, 256, 16, 16),
    Shape(16, 1024, 1024, 16, 16),
    Shape(4, 4096, 4096, 16, 16),
    Shape(1, 8192, 8192, 32, 8),
    Shape(4, 512, 8192, 32, 8),
)


def shapes(spec: AttentionVarlen) -> Iterator[Shape]:
    """Prefill of short to long sequences, and chunks of long ones whose prefix is cached."""
    yield from SHAPES


def varlen_inputs(
    spec: AttentionVarlen, shape: Shape, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Unit normal rows of sequences of one length each, and what the spec's features need."""
    q, k, v = _rows(spec, shape, device)
    ends = (_ends(shape.batch, n, device) for n in (shape.seqlen_q, shape.seqlen_kv))
    lengths = (*ends, shape.seqlen_q, shape.seqlen_kv)
    return (q, k, v, *lengths), features(spec, shape, device)


def paged_inputs(
    spec: AttentionPaged, shape: Shape, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same with keys and values in shuffled pages."""
    q, k, v = _rows(spec, shape, device)
    k, v = (x.view(-1, PAGE_SIZE, *x.shape[1:]) for x in (k, v))
    table, lengths = shuffled_pages(shape.batch, shape.seqlen_kv, device)
    ends = _ends(shape.batch, shape.seqlen_q, device)
    options = {"cu_seqlens_q": ends, "max_seqlen_q": shape.seqlen_q}
    return (q, k, v, table, lengths), options | features(spec, shape, device)


def _rows(spec: AttentionVarlen, shape: Shape, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(device).manual_seed(0)
    sizes = (
        (shape.batch * shape.seqlen_q, shape.heads_q, spec.head_dim),
        (shape.batch * shape.seqlen_kv, shape.heads_kv, spec.head_dim),
        (shape.batch * shape.seqlen_kv, shape.heads_kv, spec.head_dim_v),
    )
    dtype = TORCH_DTYPES[spec.dtype]
    return tuple(torch.randn(s, generator=generator, device=device, dtype=dtype) for s in sizes)


def _ends(batch: int, seqlen: int, device: str) -> torch.Tensor:
    return torch.arange(0, (batch + 1) * seqlen, seqlen, device=device, dtype=torch.int32)
