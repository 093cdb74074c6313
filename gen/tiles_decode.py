"""Which tiles serve a decode spec, and which one where nobody tuned."""

from __future__ import annotations

from attngen.config import ELEMENT_BYTES, TileConfig, padded
from attngen.spec_attention import AttentionDecode
from attngen.tiles_attention import why_not_triton


def why_not(spec: AttentionDecode, config: TileConfig) -> str | None:
    """Why this tile cannot serve this spec, in words; None where it can."""
    return why_no_tile(spec, config.backend) or why_not_triton(spec, config)


def why_no_tile(spec: AttentionDecode, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    return None if backend == "triton" else f"backend: got {backend!r}, allowed is triton"


def shared_memory(spec: AttentionDecode, config: TileConfig) -> int:
    """Bytes of shared memory that the k and v in flight take, and q."""
    columns = padded(spec.head_dim) + padded(spec.head_dim_v)
    elements = config.block_n * config.num_stages * columns
    return (elements + config.block_m * padded(spec.head_dim)) * ELEMENT_BYTES[spec.dtype]


def default_config(spec: AttentionDecode, backend: str) -> TileConfig:
    """The tile to take where nobody tuned: few rows, and as many keys in flight as fit.

    No target spills. Where pages are looked up, one stage of the pipeline holds the look-up.
    """
    columns = max(padded(spec.head_dim), padded(spec.head_dim_v))
    if spec.dtype == "fp32":
        block_n, num_warps, num_stages = (32 if columns <= 128 else 16), 8, 2
    else:
        block_n, num_warps, num_stages = (64 if columns <= 128 else 32), 4, 3 + spec.paged
    return TileConfig(
        block_m=16, block_n=block_n, num_warps=num_warps, num_stages=num_stages, backend=backend
    )
