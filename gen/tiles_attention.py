"""Which tiles serve an attention spec, and which one where nobody tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, product

from attngen.config import ELEMENT_BYTES, Target, TileConfig, padded
from attngen.spec_attention import Attention, AttentionFwd, AttentionPaged, AttentionVarlen


def shared_memory(spec: AttentionFwd, config: TileConfig) -> int:
    """Bytes of shared memory that the tiles take: the k and v in flight, q (sm90: two q, and o)."""
    columns = padded(spec.head_dim) + padded(spec.head_dim_v)
    rows = config.block_n * max(1, config.num_stages)
    q_tiles = 3 if config.backend == "sm90" and spec.head_dim <= 128 else 1
    q = q_tiles * config.block_m * padded(spec.head_dim)
    return (rows * columns + q) * ELEMENT_BYTES[spec.dtype]


def why_not(spec: AttentionFwd, config: TileConfig) -> str | None:
    """Why this tile cannot serve this spec, in words; None where it can."""
    rules = _why_not_sm90 if config.backend == "sm90" else why_not_triton
    return rules(spec, config)


def why_not_triton(spec: Attention, config: TileConfig) -> str | None:
    """Why a portable kernel cannot have this tile, in words; None where it can."""
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
    if spec.op != AttentionFwd.op:
        return f"op: got {spec.op!r}, allowed with sm90 is {AttentionFwd.op!r}"
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
        # scores far below that then vanish: the case "very negative scores" shows it.
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


def wrong_target(spec: AttentionFwd, target: Target) -> str | None:
    """Why no tile of a spec runs on a target; None where some do."""
    return None


def default_config(spec: AttentionFwd, backend: str) -> TileConfig:
    """The tile to take where nobody tuned, of a family that can do the spec.

    Portable tiles have no spills in the catalog, on any target; several features at once, or a head
    dim that is padded, may spill a little. Those of sm90 are what was measured fastest, causal or
    not.
    """
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
    if spec.mask:
        # Nor can it pipeline a tile of booleans any deeper.
        tile = replace(tile, num_stages=min(tile.num_stages, 3))
    if spec.dtype == "fp32" and columns == 256 and _pads(spec):
        # Loads that columns mask want registers; pipelined, they go to shared memory directly.
        tile = replace(tile, num_stages=2)
    if isinstance(spec, AttentionVarlen) and spec.dtype != "fp32":
        tile = _packed(tile, columns, paged=isinstance(spec, AttentionPaged))
    return tile


def _pads(spec: AttentionFwd) -> bool:
    """Is a tile wider than the tensor's rows?"""
    return any(padded(columns) != columns for columns in (spec.head_dim, spec.head_dim_v))


def _packed(tile: TileConfig, columns: int, *, paged: bool) -> TileConfig:
    """A dense tile with room for the addresses of packed rows, or of keys in pages.

    At head dim 256 they do not fit in the registers of 4 warps (sm_80, sm_90), at 64 those of 64
    keys do not fit beside the rest. Half of a paged pipeline's stages hold the look-up of pages:
    with 5 of them two blocks of keys are in flight.
    """
    if columns == 256:
        tile = replace(tile, num_warps=8)
    if paged:
        return replace(tile, block_n=min(tile.block_n, 32), num_stages=5)
    return replace(tile, block_n=32, num_stages=4) if columns == 64 else tile


def candidates(spec: AttentionFwd, backend: str) -> Iterator[TileConfig]:
    """The tiles that tuning tries, the default one first; none of a family that cannot do the spec.

    16 rows are for few queries; 64 rows give four warps 16 each, 128 rows four or eight warps.
    """
    if why_no_tile(spec, backend):
        return
    default = default_config(spec, backend)
    others: Iterable[TileConfig]
    yield default
    if backend == "sm90":
        others = (replace(default, num_stages=stages) for stages in (2, 3, 4))
    elif spec.dtype == "fp32":
        others = _tiles((16, 32, 64), (16, 32, 64), (4, 8), (1, 2))
    else:
        others = chain(
            _tiles((16,), (64, 128), (2, 4), (2, 3)),
            _tiles((64,), (16, 32, 64, 128), (4,), (2, 3, 4)),
            _tiles((128,), (32, 64, 128), (4, 8), (2, 3, 4)),
        )
    for tile in others:
        if tile != default and why_not(spec, tile) is None and not _hopeless(spec, tile):
            yield tile


def _tiles(*choices: tuple[int, ...]) -> Iterator[TileConfig]:
    return (_tile(m, n, warps, stages) for m, n, warps, stages in product(*choices))


def _hopeless(spec: AttentionFwd, tile: TileConfig) -> bool:
    """Would a tile's k and v, or its accumulators, be out of all proportion to its head dim?"""
    if tile.backend == "sm90":
        return False
    columns = max(padded(spec.head_dim), padded(spec.head_dim_v))
    accumulators = tile.block_m * (columns + tile.block_n) // (32 * tile.num_warps)
    deep = spec.bias and tile.num_stages > 2
    return accumulators > 256 or deep or (tile.block_n == 16 and columns < 256)


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
