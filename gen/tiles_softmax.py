"""Which tiles serve a softmax spec, and which one where nobody tuned.

`single` holds block_m whole rows. `online`, `safe` and top-k go through one row in steps of block_n
columns, in which each thread has a whole number of vectors of 16 bytes and keeps a state of its
own. `split` gives each program block_n columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from attngen.config import ELEMENT_BYTES, Target, TileConfig, next_power_of_2
from attngen.spec import Spec
from attngen.spec_softmax import Softmax, SoftmaxTopk

WARP = 32
SHARE = 64
"""Most columns of a tile that one thread takes; the error budget counts on it."""


def lanes(spec: Spec, config: TileConfig) -> int:
    """Columns of a step that the threads take with one vector each."""
    return config.num_warps * WARP * 16 // ELEMENT_BYTES[spec.dtype]


def row_block(spec: Softmax) -> int:
    """Columns of the tile that holds a whole row."""
    return next_power_of_2(spec.columns)


def wrong_target(spec: Spec, target: Target) -> str | None:
    """Why no tile of a spec runs on a target; None where some do."""
    return None


def shared_memory(spec: Spec, config: TileConfig) -> int:
    """Bytes of shared memory that a tile takes: steps in flight, and sums of the warps."""
    ahead = config.num_stages if config.num_stages > 1 else 0
    return ahead * config.block_n * ELEMENT_BYTES[spec.dtype] + 16 * config.num_warps


def why_not(spec: Spec, config: TileConfig) -> str | None:
    """Why this tile cannot serve this spec, in words; None where it can."""
    if reason := why_no_tile(spec, config.backend):
        return reason
    if config.num_warps not in (1, 2, 4, 8, 16):
        return f"num_warps: got {config.num_warps!r}, allowed are 1, 2, 4, 8, 16"
    if config.num_stages not in range(1, 8):
        return f"num_stages: got {config.num_stages!r}, allowed are 1 to 7"
    whole_rows = isinstance(spec, Softmax) and spec.single
    used, unused = ("block_m", "block_n") if whole_rows else ("block_n", "block_m")
    if getattr(config, unused) != 0:
        return f"{unused}: got {getattr(config, unused)!r}, allowed is 0: no such block here"
    value = getattr(config, used)
    if type(value) is not int or value < 1 or value & (value - 1):
        return f"{used}: got {value!r}, allowed is a power of 2"
    if isinstance(spec, Softmax) and whole_rows:
        return _why_not_share(used, value, value * row_block(spec), config)
    least = 1 if isinstance(spec, Softmax) and spec.split else lanes(spec, config)
    if value < least:
        return f"block_n: got {value}, allowed is at least {least}: a vector a thread"
    return _why_not_share(used, value, value, config)


def _why_not_share(name: str, value: int, columns: int, config: TileConfig) -> str | None:
    share = columns // (WARP * config.num_warps)
    if share <= SHARE:
        return None
    return f"{name}: got {value}, which gives each thread {share} columns, allowed are {SHARE}"


def why_no_tile(spec: Spec, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    return f"op: got {spec.op}, allowed with sm90 is attention_fwd" if backend == "sm90" else None


def default_config(spec: Softmax | SoftmaxTopk, backend: str) -> TileConfig:
    """The tile to take where nobody tuned, of a family that can do the spec."""
    if isinstance(spec, Softmax) and spec.single:
        return _single(spec)
    if isinstance(spec, Softmax) and spec.split:
        return TileConfig(block_m=0, block_n=8192, num_warps=8, num_stages=1)
    if isinstance(spec, SoftmaxTopk):
        # Few threads: each round of the search takes as long as they take to agree.
        return TileConfig(block_m=0, block_n=2048, num_warps=2, num_stages=1)
    num_warps = 4 if spec.columns <= 8192 else 16
    return TileConfig(block_m=0, block_n=1024 * num_warps, num_warps=num_warps, num_stages=1)


def _single(spec: Softmax) -> TileConfig:
    """Rows of 4 KB together, or one row; 16 to 64 columns a thread."""
    block = row_block(spec)
    num_warps = min(16, max(4, block // (WARP * 32)))
    rows = max(1, 4096 // (block * ELEMENT_BYTES[spec.dtype]))
    return TileConfig(block_m=rows, block_n=0, num_warps=num_warps, num_stages=1)


def candidates(spec: Softmax | SoftmaxTopk, backend: str) -> Iterator[TileConfig]:
    """The tiles that tuning tries, the default first; none of a family that cannot do the spec."""
    if why_no_tile(spec, backend):
        return
    default = default_config(spec, backend)
    yield default
    whole_rows = isinstance(spec, Softmax) and spec.single
    blocks = [1 << i for i in (range(5) if whole_rows else range(9, 15))]
    stages = (1,) if whole_rows else (1, 3)
    for block, num_warps, num_stages in product(blocks, (1, 2, 4, 8, 16), stages):
        m, n = (block, 0) if whole_rows else (0, block)
        tile = replace(default, block_m=m, block_n=n, num_warps=num_warps, num_stages=num_stages)
        columns = block * row_block(spec) if isinstance(spec, Softmax) and spec.single else block
        enough = columns // (WARP * num_warps) >= 8
        if tile != default and enough and why_not(spec, tile) is None:
            yield tile
