"""Attention by kernels of small tiles, built when a report first needs them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_inputs import Attend

from attngen import runtime, store
from attngen.config import TileConfig
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
TILE = TileConfig(block_m=16, block_n=16, num_warps=1, num_stages=1)


@pytest.fixture(scope="session")
def attend(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.attention` with return_lse, on tensors of the device that kernels run on."""
    folder: Path = tmp_path_factory.mktemp("kernels")

    def call(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        spec = AttentionFwd(
            head_dim=q.shape[-1],
            head_dim_v=v.shape[-1],
            dtype=DTYPES[q.dtype],
            causal=options.get("causal", False),
            window=tuple(options.get("window_size", (-1, -1))) != (-1, -1),
            softcap=options.get("softcap") is not None,
            alibi=options.get("alibi_slopes") is not None,
            bias=options.get("bias") is not None,
            mask=options.get("mask") is not None,
            sinks=options.get("sinks") is not None,
        )
        store.write(Variant(spec, TILE), folder)
        with warnings.catch_warnings():
            # Triton's interpreter takes the bounds of loops from arrays of one element.
            warnings.filterwarnings("ignore", "Conversion of an array", DeprecationWarning)
            o, lse = runtime.attention(q, k, v, return_lse=True, **options)
        return o, lse

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.PATH_VARIABLE, str(folder))
        runtime.forget()
        yield call
    runtime.forget()
