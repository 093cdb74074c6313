"""What attention is timed on: shapes, one for each bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from attngen.spec_attention import AttentionFwd
from attngen.verify_attention import TORCH_DTYPES


@dataclass(frozen=True)
class Shape:
    """The sizes of one call."""

    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int


SHAPES = (
    Shape(64, 256, 256, 16, 16),
    Shape(16, 1024, 1024, 16, 16),
    Shape(1, 1024, 1024, 16, 16),
    Shape(4, 4096, 4096, 16, 16),
    Shape(1, 8192, 8192, 32, 8),
    Shape(1, 512, 8192, 32, 8),
    Shape(16, 1, 4096, 32, 8),
)


def shapes(spec: AttentionFwd) -> Iterator[Shape]:
    """Prefill of short to long sequences, few of them and many, a chunk, and one query each."""
    yield from SHAPES


def sizes(shape: Shape) -> dict[str, int]:
    """What the bucket is made of; `attngen.runtime` takes the same sizes from its tensors."""
    heads = shape.batch * shape.heads_q
    return {"seqlen_q": shape.seqlen_q, "seqlen_kv": shape.seqlen_kv, "heads": heads}


def inputs(
    spec: AttentionFwd, shape: Shape, device: str
) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """Unit normal q, k and v, and the options that the spec's features need."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device, dtype=dtype)

    dtype = TORCH_DTYPES[spec.dtype]
    q = normal(shape.batch, shape.seqlen_q, shape.heads_q, spec.head_dim, dtype=dtype)
    k, v = (
        normal(shape.batch, shape.seqlen_kv, shape.heads_kv, columns, dtype=dtype)
        for columns in (spec.head_dim, spec.head_dim_v)
    )
    # One matrix for all heads and sequences: more would be timing its memory traffic.
    scores = (1, 1, shape.seqlen_q, shape.seqlen_kv)
    options = features(spec, shape, device)
    if spec.bias:
        options["bias"] = normal(*scores, dtype=dtype)
    if spec.mask:
        options["mask"] = normal(*scores, dtype=torch.float32) > -1
    return (q, k, v), options


def features(spec: Any, shape: Any, device: str) -> dict[str, Any]:
    """The options that a spec's features need but for tensors shaped like the scores.

    Of attention of any kind; a shape has seqlen_kv and heads_q.
    """
    options: dict[str, Any] = {}
    if spec.window:
        options["window_size"] = (min(1024, shape.seqlen_kv // 4), 0 if spec.causal else 256)
    if spec.softcap:
        options["softcap"] = 30.0
    if spec.alibi:
        heads = torch.arange(1, shape.heads_q + 1, device=device, dtype=torch.float32)
        options["alibi_slopes"] = torch.exp2(-8.0 * heads / shape.heads_q)
    if spec.sinks:
        options["sinks"] = torch.zeros(shape.heads_q, device=device)
    return options
