"""Merges of attention states beside a copy of the same bytes, and the same in torch, compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from attngen.bench_cell import Cell, built
from attngen.spec_merge import MergeState
from attngen.timing import TORCH_DTYPES, Call

TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536)
HEADS, HEAD_DIM = 32, 128


def cells(dtypes: Iterable[str], backend: str) -> Iterator[Cell]:
    """Two states of 32 heads of 128 columns each, by the number of tokens: TB/s."""
    for tokens in TOKENS:
        for dtype in dtypes:
            yield _cell(tokens, dtype, backend)


def moved(tokens: int, element: int) -> int:
    """Bytes of a merge: two o and two lse in, one of each out."""
    return 3 * tokens * HEADS * (HEAD_DIM * element + 4)


def _cell(tokens: int, dtype: str, backend: str) -> Cell:
    states = [_state(tokens, dtype) for _ in range(3)]
    (o_a, lse_a), (o_b, lse_b), (out, out_lse) = states
    work = moved(tokens, o_a.element_size())
    source = torch.empty(work // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return Cell(
        MergeState(head_dim=HEAD_DIM, dtype=dtype),
        {"tokens": tokens, "heads": HEADS, "head_dim": HEAD_DIM},
        "tbps",
        float(work),
        kernels=built(
            MergeState(head_dim=HEAD_DIM, dtype=dtype),
            backend,
            lambda module: (
                lambda: module.merge_state(o_a, lse_a, o_b, lse_b, out=out, out_lse=out_lse)
            ),
        ),
        peers=lambda: {"torch.compile": _compiled(o_a, lse_a, o_b, lse_b)},
        bounds={"copy": lambda: target.copy_(source)},
    )


def _state(tokens: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    o = torch.randn((tokens, HEADS, HEAD_DIM), device="cuda", dtype=TORCH_DTYPES[dtype])
    return o, torch.randn((HEADS, tokens), device="cuda")


def _compiled(
    o_a: torch.Tensor, lse_a: torch.Tensor, o_b: torch.Tensor, lse_b: torch.Tensor
) -> Call:
    """The formula without guards, fused by torch's own compiler."""

    def merge(
        o_a: torch.Tensor, lse_a: torch.Tensor, o_b: torch.Tensor, lse_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        lse = torch.logaddexp(lse_a, lse_b)
        w_a, w_b = ((x - lse).exp().T[:, :, None] for x in (lse_a, lse_b))
        return (w_a * o_a.float() + w_b * o_b.float()).to(o_a.dtype), lse

    torch._dynamo.reset()
    compiled = torch.compile(merge, dynamic=False)
    return lambda: compiled(o_a, lse_a, o_b, lse_b)
