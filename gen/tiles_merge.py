"""Which tiles serve a merge, and which one where nobody tuned.

A tile is BLOCK_M rows, one for each token and head, of all columns of o.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from attngen.config import Target, TileConfig, next_power_of_2
from attngen.spec_merge import Merge

_BLOCKS = tuple(1 << i for i in range(11))
_MOST_ELEMENTS = 2**14
"""Elements of a tile; with more, their float32 sums leave no registers for anything else."""
_ELEMENTS_A_THREAD = 16
_WARPS = 4


def shared_memory(spec: Merge, config: TileConfig) -> int:
    """Bytes of shared memory: no tile is kept there."""
    return 0


def why_not(spec: Merge, config: TileConfig) -> str | None:
    """Why this tile cannot serve this spec, in words; None where it can."""
    if reason := why_no_tile(spec, config.backend):
        return reason
    most = _most_rows(spec)
    allowed = [block for block in _BLOCKS if block <= most]
    if config.block_m not in allowed:
        words = ", ".join(map(str, allowed))
        return f"block_m: got {config.block_m!r}, allowed at this head dim are {words}"
    if config.block_n != 0:
        return f"block_n: got {config.block_n!r}, allowed is none: a merge has no keys"
    if config.num_warps not in (1, 2, 4, 8, 16):
        return f"num_warps: got {config.num_warps!r}, allowed are 1, 2, 4, 8, 16"
    if config.num_stages != 1:
        return f"num_stages: got {config.num_stages!r}, allowed is 1"
    return None


def why_no_tile(spec: Merge, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    if backend != "triton":
        return f"backend: got {backend}, allowed with {spec.op} is triton"
    return None


def wrong_target(spec: Merge, target: Target) -> str | None:
    """Why no tile of a spec runs on a target; None where some do."""
    if spec.out_fp8 and not target.fp8:
        return f"out_fp8: got {target.name}, which has no float8_e4m3fn; allowed is sm_89 and up"
    return None


def default_config(spec: Merge, backend: str) -> TileConfig:
    """The tile to take where nobody tuned: every thread loads 16 elements of each state.

    With many states one warp: it shares no sums with others.
    """
    num_warps = 1 if spec.op == "merge_states" else _WARPS
    elements = 32 * num_warps * _ELEMENTS_A_THREAD
    rows = max(1, elements // next_power_of_2(spec.head_dim))
    return TileConfig(
        block_m=min(rows, _most_rows(spec)), block_n=0, num_warps=num_warps, num_stages=1
    )


def _most_rows(spec: Merge) -> int:
    return min(_BLOCKS[-1], _MOST_ELEMENTS // next_power_of_2(spec.head_dim))


def candidates(spec: Merge, backend: str) -> Iterator[TileConfig]:
    """The tiles that tuning tries, the default first; none of a family that cannot do the spec."""
    if why_no_tile(spec, backend):
        return
    default = default_config(spec, backend)
    yield default
    for block_m, num_warps in product(_BLOCKS, (1, 2, 4, 8)):
        tile = replace(default, block_m=block_m, num_warps=num_warps)
        elements = block_m * next_power_of_2(spec.head_dim) // (32 * num_warps)
        if tile != default and why_not(spec, tile) is None and 4 <= elements <= 64:
            yield tile
