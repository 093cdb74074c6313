"""Which tiles serve a decode spec, and which one where nobody tuned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from attngen.config import ELEMENT_BYTES, Target, TileConfig, padded
from attngen.spec_attention import AttentionDecode
from attngen.tiles_attention import why_not_triton


def why_not(spec: AttentionDecode, config: TileConfig) -> str | None:
    """Why this tile cannot serve this spec, in words; None where it can."""
    return why_no_tile(spec, config.backend) or why_not_triton(spec, config)


def why_no_tile(spec: AttentionDecode, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    return None if backend == "triton" else f"backend: got {backend!r}, allowed is triton"


def wrong_target(spec: AttentionDecode, target: Target) -> str | None:
    """Why no tile of a spec runs on a target; None where some do."""
    return None


def shared_memory(spec: AttentionDecode, config: TileConfig) -> int:
    """Bytes of shared memory: the k and v in flight, q and P; with pages, their numbers.

    The last stage of a pipeline is in registers. A look-up of pages takes as many stages as loads.
    """
    q_and_p = config.block_m * (padded(spec.head_dim) + config.block_n)
    pages = 4 * config.num_stages * config.block_n if spec.paged else 0
    return bytes_in_flight(spec, config) + q_and_p * ELEMENT_BYTES[spec.dtype] + pages


def bytes_in_flight(spec: AttentionDecode, config: TileConfig) -> int:
    """Bytes of k and v that one program has on their way."""
    blocks = max(1, (config.num_stages - 1) // (1 + spec.paged))
    columns = padded(spec.head_dim) + padded(spec.head_dim_v)
    return blocks * config.block_n * columns * ELEMENT_BYTES[spec.dtype]


def default_config(spec: AttentionDecode, backend: str) -> TileConfig:
    """The tile to take where nobody tuned: few rows, and as many keys in flight as fit.

    Two or three blocks of keys are in flight.
    """
    columns = max(padded(spec.head_dim), padded(spec.head_dim_v))
    if spec.dtype == "fp32":
        block_n, num_warps, num_stages = (32 if columns <= 64 else 16), 8, 2
    elif spec.paged:
        # AMD keeps every stage in local memory, which is to hold five of them; a window's third
        # loop takes registers.
        block_n, num_stages = (64 if columns <= 64 else 4096 // columns), 5
        num_warps = 8 if spec.window else 4
    else:
        tiles = {64: (64, 4, 4), 128: (32, 2, 4)}
        block_n, num_warps, num_stages = tiles.get(max(64, columns), (32, 4, 3))
    return TileConfig(
        block_m=16, block_n=block_n, num_warps=num_warps, num_stages=num_stages, backend=backend
    )


def wide_config(spec: AttentionDecode) -> TileConfig:
    """The tile for many rows of a KV head, which would otherwise read the keys many times.

    With pages, four stages leave it the registers that its rows take.
    """
    default = default_config(spec, "triton")
    stages = min(default.num_stages, 4)
    return replace(default, block_m=64, num_warps=4, num_stages=stages)


def candidates(spec: AttentionDecode, backend: str) -> Iterator[TileConfig]:
    """The tiles that tuning tries, the default one first; none of a family that cannot do the spec.

    More rows than 16 are for groups, or queries, of more.
    """
    if why_no_tile(spec, backend):
        return
    default = default_config(spec, backend)
    yield default
    stages = (3, 5, 7) if spec.paged else (2, 3, 4, 5)
    choices = product((16, 32, 64, 128), (2, 4, 8), stages if spec.dtype != "fp32" else (1, 2, 3))
    for block_n, num_warps, num_stages in choices:
        tile = replace(default, block_n=block_n, num_warps=num_warps, num_stages=num_stages)
        if tile != default and shared_memory(spec, tile) <= 2**17:
            yield tile
