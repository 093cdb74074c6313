"""How a kernel computes: tile sizes, the GPUs they are meant for, and which pairs fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attngen.spec import AttentionFwd

ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
BACKENDS = ("triton",)


@dataclass(frozen=True)
class Target:
    """A GPU to compile for.

    Attributes:
        name: as on the command line, e.g. "sm_90" or "gfx942".
        backend: Triton's name for the compiler, "cuda" or "hip".
        arch: compute capability times ten for "cuda", the ISA's name for "hip".
        warp_size: threads a warp.
        shared_memory: bytes one program may use.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_memory: int


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        # Shared memory a block: CUDA C++ Programming Guide, "Technical Specifications per
        # Compute Capability"; AMD CDNA3 ISA, local data share.
        Target("sm_80", "cuda", 80, 32, 166_912),
        Target("sm_86", "cuda", 86, 32, 101_376),
        Target("sm_89", "cuda", 89, 32, 101_376),
        Target("sm_90", "cuda", 90, 32, 232_448),
        Target("sm_100", "cuda", 100, 32, 232_448),
        Target("sm_120", "cuda", 120, 32, 101_376),
        Target("gfx942", "hip", "gfx942", 64, 65_536),
    )
}


@dataclass(frozen=True, kw_only=True)
class TileConfig:
    """The schedule of one kernel.

    Attributes:
        block_m: query rows a program.
        block_n: keys a step of the loop.
        num_warps: warps a program.
        num_stages: depth of the software pipeline that loads k and v ahead.
        backend: the family of templates, "triton".
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    backend: str = "triton"


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def padded(head_dim: int) -> int:
    """Columns of the tile that holds `head_dim`: a power of two that a matrix product takes."""
    return max(16, next_power_of_2(head_dim))


def shared_memory(spec: AttentionFwd, config: TileConfig) -> int:
    """Bytes of shared memory the pipelined k and v tiles and the q tile take, roughly."""
    columns = padded(spec.head_dim) + padded(spec.head_dim_v)
    rows = config.block_n * max(1, config.num_stages)
    q = config.block_m * padded(spec.head_dim)
    return (rows * columns + q) * ELEMENT_BYTES[spec.dtype]


def why_not(spec: AttentionFwd, config: TileConfig, target: Target | None = None) -> str | None:
    """Why this tile cannot serve this spec (on this target), in words; None where it can."""
    for name in ("block_m", "block_n"):
        value = getattr(config, name)
        if value not in (16, 32, 64, 128, 256):
            return f"{name}: got {value!r}, allowed are 16, 32, 64, 128, 256"
    if config.num_warps not in (1, 2, 4, 8, 16):
        return f"num_warps: got {config.num_warps!r}, allowed are 1, 2, 4, 8, 16"
    if config.num_stages not in range(1, 8):
        return f"num_stages: got {config.num_stages!r}, allowed are 1 to 7"
    if config.backend not in BACKENDS:
        return f"backend: got {config.backend!r}, allowed are {', '.join(BACKENDS)}"
    if target is not None:
        needed = shared_memory(spec, config)
        if needed > target.shared_memory:
            return (
                f"shared memory: {needed} bytes for {config.num_stages} stages of {config.block_n}"
                f" keys, {target.name} has {target.shared_memory}"
            )
    return None


def default_config(spec: AttentionFwd) -> TileConfig:
    """The tile to take where nobody tuned: at the catalog's head dims, no spills on any target."""
    columns = max(padded(spec.head_dim), padded(spec.head_dim_v))
    tile = (_FP32_DEFAULTS if spec.dtype == "fp32" else _DEFAULTS)[columns]
    if spec.bias:
        # Triton 3.6 cannot pipeline a tile of bias any deeper for AMD.
        tile = replace(tile, num_stages=min(tile.num_stages, 2))
    return tile


def _tile(block_m: int, block_n: int, num_warps: int, num_stages: int) -> TileConfig:
    return TileConfig(block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages)


# Each compiles for every target without spills and within 64 KiB of AMD's local memory;
# docs/performance/log.md has what was tried.
_DEFAULTS = {
    16: _tile(64, 64, 4, 2),
    32: _tile(64, 64, 4, 2),
    64: _tile(64, 64, 4, 3),
    128: _tile(64, 32, 4, 4),
    256: _tile(64, 16, 4, 4),
}
_FP32_DEFAULTS = {
    16: _tile(32, 32, 8, 2),
    32: _tile(32, 32, 8, 2),
    64: _tile(64, 32, 8, 2),
    128: _tile(32, 16, 8, 2),
    256: _tile(32, 16, 8, 1),
}
