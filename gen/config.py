"""How a kernel computes: tile sizes, the GPUs they are meant for, and which pairs fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attngen.errors import InvalidSpec
from attngen.spec import AttentionFwd

ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
BACKENDS = ("triton", "sm90")
"""The families of templates: "triton" runs everywhere, "sm90" is Gluon for Hopper alone."""


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
        block_m: query rows a program (sm90: a tile, 64 for each warpgroup).
        block_n: keys a step of the loop.
        num_warps: warps a program (sm90: a warpgroup, always 4).
        num_stages: depth of the software pipeline that loads k and v ahead.
        backend: the family of templates, "triton" or "sm90".
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
    """Bytes of shared memory that the tiles take: the k and v in flight, q (sm90: two q, and o)."""
    columns = padded(spec.head_dim) + padded(spec.head_dim_v)
    rows = config.block_n * max(1, config.num_stages)
    q_tiles = 3 if config.backend == "sm90" and spec.head_dim <= 128 else 1
    q = q_tiles * config.block_m * padded(spec.head_dim)
    return (rows * columns + q) * ELEMENT_BYTES[spec.dtype]


def why_not(spec: AttentionFwd, config: TileConfig, target: Target | None = None) -> str | None:
    """Why this tile cannot serve this spec (on this target), in words; None where it can."""
    if config.backend not in BACKENDS:
        return f"backend: got {config.backend!r}, allowed are {', '.join(BACKENDS)}"
    rules = _why_not_sm90 if config.backend == "sm90" else _why_not_triton
    reason = rules(spec, config)
    if reason is None and target is not None:
        needed = shared_memory(spec, config)
        reason = wrong_target(config, target)
        if reason is None and needed > target.shared_memory:
            return (
                f"shared memory: {needed} bytes for {config.num_stages} stages of {config.block_n}"
                f" keys, {target.name} has {target.shared_memory}"
            )
    return reason


def wrong_target(config: TileConfig, target: Target) -> str | None:
    """Why no kernel of this tile's family runs on a target; None where they do."""
    if config.backend == "sm90" and target.name != "sm_90":
        return f"target: got {target.name}, allowed is sm_90: kernels of sm90 are for Hopper alone"
    return None


def _why_not_triton(spec: AttentionFwd, config: TileConfig) -> str | None:
    for name in ("block_m", "block_n"):
        value = getattr(config, name)
        if value not in (16, 32, 64, 128, 256):
            return f"{name}: got {value!r}, allowed are 16, 32, 64, 128, 256"
    if config.num_warps not in (1, 2, 4, 8, 16):
        return f"num_warps: got {config.num_warps!r}, allowed are 1, 2, 4, 8, 16"
    if config.num_stages not in range(1, 8):
        return f"num_stages: got {config.num_stages!r}, allowed are 1 to 7"
    return None


def _why_not_sm90(spec: AttentionFwd, config: TileConfig) -> str | None:
    if spec.dtype not in ("fp16", "bf16"):
        return f"dtype: got {spec.dtype!r}, allowed with sm90 are fp16, bf16"
    if spec.head_dim not in _SM90_DEFAULTS:
        allowed = ", ".join(map(str, _SM90_DEFAULTS))
        return f"head_dim: got {spec.head_dim}, allowed with sm90 are {allowed}"
    if spec.head_dim_v != spec.head_dim:
        return f"head_dim_v: got {spec.head_dim_v}, allowed with sm90 is head_dim ({spec.head_dim})"
    features = [name for name in spec.switched_on if name != "causal"]
    if features:
        return f"{features[0]}: got True, allowed with sm90 is no feature but causal"
    if spec.head_dim == 256 and spec.causal:
        # The lazy reference of this head dim starts at 0 in a row that its first block hides, and
        # scores far below that then vanish: "very negative scores" of gen/cases.py shows it.
        return "causal: got True, allowed with sm90 at head dim 256 is False"
    measured = _SM90_DEFAULTS[spec.head_dim]
    for name in ("block_m", "block_n", "num_warps"):
        value, allowed_value = getattr(config, name), getattr(measured, name)
        if value != allowed_value:
            return f"{name}: got {value!r}, allowed with sm90 at this head dim is {allowed_value}"
    most = 4 if spec.head_dim == 64 else 2
    if config.num_stages not in range(2, most + 1):
        return f"num_stages: got {config.num_stages!r}, allowed with sm90 here are 2 to {most}"
    return None


def why_no_tile(spec: AttentionFwd, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    if backend == "sm90":
        return _why_not_sm90(spec, _SM90_DEFAULTS.get(spec.head_dim, _SM90_DEFAULTS[128]))
    return None


def default_config(spec: AttentionFwd, backend: str = "triton") -> TileConfig:
    """The tile to take where nobody tuned.

    Portable tiles have no spills in the catalog, on any target; several features at once, or a head
    dim that is padded, may spill a little. Those of sm90 are what was measured fastest, causal or
    not.

    Raises:
        InvalidSpec: where the family cannot do the spec.
    """
    reason = why_no_tile(spec, backend)
    if reason:
        raise InvalidSpec(reason)
    if backend == "sm90":
        return _SM90_DEFAULTS[spec.head_dim]
    columns = max(padded(spec.head_dim), padded(spec.head_dim_v))
    tile = (_FP32_DEFAULTS if spec.dtype == "fp32" else _DEFAULTS)[columns]
    if spec.bias:
        # Triton 3.6 cannot pipeline a tile of bias any deeper for AMD, nor one of 32 x 32 at all.
        small = tile.block_m * tile.block_n <= 32 * 32
        tile = replace(tile, num_stages=1 if small and columns <= 32 else min(tile.num_stages, 2))
    if spec.mask or (spec.bias and columns == 256):
        # Four warps that hold such a tile beside all else run out of registers.
        tile = replace(tile, num_warps=8)
    if spec.dtype == "fp32" and columns == 256 and _pads(spec):
        # Loads that columns mask want registers; pipelined, they go to shared memory directly.
        tile = replace(tile, num_stages=2)
    return tile


def _pads(spec: AttentionFwd) -> bool:
    """Is a tile wider than the tensor's rows?"""
    return any(padded(columns) != columns for columns in (spec.head_dim, spec.head_dim_v))


def _tile(
    block_m: int, block_n: int, num_warps: int, num_stages: int, backend: str = "triton"
) -> TileConfig:
    return TileConfig(
        block_m=block_m,
        block_n=block_n,
        num_warps=num_warps,
        num_stages=num_stages,
        backend=backend,
    )


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
_SM90_DEFAULTS = {
    64: _tile(192, 128, 4, 2, "sm90"),
    96: _tile(128, 128, 4, 2, "sm90"),
    128: _tile(128, 128, 4, 2, "sm90"),
    256: _tile(128, 64, 4, 2, "sm90"),
}
