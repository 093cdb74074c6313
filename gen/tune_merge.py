"""What merges are timed on: numbers of tokens, one for each bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from attngen.spec_merge import Merge
from attngen.verify_attention import TORCH_DTYPES

HEADS = 32
TOKENS = (16, 256, 4096, 65536)
STATES = 8


def shapes(spec: Merge) -> Iterator[int]:
    """From a few tokens, where launching is all, to many, where memory is."""
    yield from TOKENS


def sizes(tokens: int) -> dict[str, int]:
    """What the bucket is made of."""
    return {"rows": tokens * HEADS}


def inputs(
    spec: Merge, tokens: int, device: str
) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """Two unit normal states, or eight of a merge of many; ragged ones in lists of eight."""
    generator = torch.Generator(device).manual_seed(0)
    many = STATES if spec.op == "merge_states" else 2
    ragged = getattr(spec, "ragged", False)
    leading = (many * tokens,) if ragged else (many, tokens)
    dtype = TORCH_DTYPES[spec.dtype]
    o = torch.randn(
        (*leading, HEADS, spec.head_dim), generator=generator, device=device, dtype=dtype
    )
    lse = torch.randn((*leading, HEADS), generator=generator, device=device).transpose(-1, -2)
    options: dict[str, Any] = {"output_scale": 0.05} if spec.out_fp8 else {}
    if ragged:
        options["indptr"] = torch.arange(0, many * tokens + 1, many, device=device).int()
    if spec.op == "merge_states":
        return (o, lse.contiguous()), options
    return (o[0], lse[0].contiguous(), o[1], lse[1].contiguous()), options
