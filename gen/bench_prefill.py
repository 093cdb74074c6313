"""Prefill beside what torch brings: equal lengths of queries and keys, causal and not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attngen.bench_cell import Cell, built
from attngen.spec_attention import AttentionFwd
from attngen.timing import TORCH_DTYPES, Call


@dataclass(frozen=True)
class Shape:
    """One prefill: equal lengths of queries and keys."""

    batch: int
    seqlen: int
    heads_q: int
    heads_kv: int
    head_dim: int

    def flops(self, causal: bool) -> float:
        """Operations of the two products, half of them where causal."""
        full = 4.0 * self.batch * self.heads_q * self.seqlen**2 * self.head_dim
        return full / 2 if causal else full


SHAPES = (
    Shape(1, 8192, 32, 8, 128),
    Shape(8, 2048, 16, 16, 128),
    Shape(32, 512, 16, 16, 128),
    Shape(1, 16384, 16, 16, 128),
    Shape(2, 8192, 32, 32, 64),
    Shape(16, 1024, 32, 32, 64),
    Shape(1, 8192, 16, 16, 256),
)


def cells(dtypes: Iterable[str], backend: str) -> Iterator[Cell]:
    """Every shape in each dtype, causal and not: TFLOP/s."""
    for shape in SHAPES:
        for dtype in dtypes:
            for causal in (False, True):
                yield _cell(
                    shape,
                    AttentionFwd(head_dim=shape.head_dim, dtype=dtype, causal=causal),
                    backend,
                )


def _cell(shape: Shape, spec: AttentionFwd, backend: str) -> Cell:
    q, k, v = (
        torch.randn(
            (shape.batch, shape.seqlen, heads, shape.head_dim),
            device="cuda",
            dtype=TORCH_DTYPES[spec.dtype],
        )
        for heads in (shape.heads_q, shape.heads_kv, shape.heads_kv)
    )
    return Cell(
        spec,
        vars(shape),
        "tflops",
        shape.flops(spec.causal),
        kernels=built(spec, backend, lambda module: lambda: module.attention_fwd(q, k, v)),
        peers=lambda: dict(_peers(q, k, v, spec.causal)),
    )


def _peers(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Iterator[tuple[str, Call]]:
    """What torch brings, on [batch, heads, seqlen, d]: FlashAttention-2, cuDNN, FlexAttention."""
    views = (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    grouped = q.shape[2] != k.shape[2]

    def sdpa(backend: SDPBackend) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*views, is_causal=causal, enable_gqa=grouped)

        return call

    yield "fa2", sdpa(SDPBackend.FLASH_ATTENTION)
    yield "cudnn", sdpa(SDPBackend.CUDNN_ATTENTION)
    yield "flex", _flex(views, causal, grouped)


def _flex(
    views: tuple[torch.Tensor, torch.Tensor, torch.Tensor], causal: bool, grouped: bool
) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def triangle(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    seqlen = views[0].shape[2]
    mask = create_block_mask(triangle, None, None, seqlen, seqlen, "cuda") if causal else None
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*views, block_mask=mask, enable_gqa=grouped)
