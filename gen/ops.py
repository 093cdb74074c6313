"""The operators: the class of each one's specs, and the module that knows its tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from attngen import tiles_attention, tiles_decode, tiles_merge, tiles_softmax
from attngen.config import BACKENDS, Target, TileConfig
from attngen.errors import InvalidSpec
from attngen.spec import Spec
from attngen.spec_attention import (
    AttentionDecode,
    AttentionFwd,
    AttentionPaged,
    AttentionVarlen,
)
from attngen.spec_merge import MergeState, MergeStates
from attngen.spec_softmax import Softmax, SoftmaxTopk


class Tiles(Protocol):
    """What a module of tiles answers about the specs of its operator."""

    def why_not(self, spec: Any, config: TileConfig) -> str | None:
        """Why a tile cannot serve a spec, in words; None where it can."""

    def why_no_tile(self, spec: Any, backend: str) -> str | None:
        """Why a family cannot do a spec, whatever the tile; None where it can."""

    def wrong_target(self, spec: Any, target: Target) -> str | None:
        """Why no tile of a spec runs on a target; None where some do."""

    def default_config(self, spec: Any, backend: str) -> TileConfig:
        """The tile to take where nobody tuned, of a family that can do the spec."""

    def shared_memory(self, spec: Any, config: TileConfig) -> int:
        """Bytes of shared memory that a tile takes."""


@dataclass(frozen=True)
class Op:
    """One operator."""

    spec: type[Spec]
    tiles: Tiles


OPS: dict[str, Op] = {
    op.spec.op: op
    for op in (
        Op(AttentionFwd, tiles_attention),
        Op(AttentionDecode, tiles_decode),
        Op(AttentionVarlen, tiles_attention),
        Op(AttentionPaged, tiles_attention),
        Op(MergeState, tiles_merge),
        Op(MergeStates, tiles_merge),
        Op(Softmax, tiles_softmax),
        Op(SoftmaxTopk, tiles_softmax),
    )
}


def why_not(spec: Spec, config: TileConfig, target: Target | None = None) -> str | None:
    """Why this tile cannot serve this spec (on this target), in words; None where it can."""
    if config.backend not in BACKENDS:
        return f"backend: got {config.backend!r}, allowed are {', '.join(BACKENDS)}"
    tiles = OPS[spec.op].tiles
    if reason := tiles.why_not(spec, config):
        return reason
    if target is None:
        return None
    if reason := wrong_target(spec, config, target):
        return reason
    needed = tiles.shared_memory(spec, config)
    if needed > target.shared_memory:
        return (
            f"shared memory: this tile takes {needed} bytes, {target.name} has"
            f" {target.shared_memory}"
        )
    return None


def wrong_target(spec: Spec, config: TileConfig, target: Target) -> str | None:
    """Why no kernel of a spec, or of a tile's family, runs on a target; None where they do."""
    if config.backend == "sm90" and target.name != "sm_90":
        return f"target: got {target.name}, allowed is sm_90: kernels of sm90 are for Hopper alone"
    return OPS[spec.op].tiles.wrong_target(spec, target)


def why_no_tile(spec: Spec, backend: str) -> str | None:
    """Why a family cannot do a spec, whatever the tile; None where it can."""
    return OPS[spec.op].tiles.why_no_tile(spec, backend)


def default_config(spec: Spec, backend: str = "triton") -> TileConfig:
    """The tile to take where nobody tuned.

    Raises:
        InvalidSpec: where the family cannot do the spec.
    """
    if reason := why_no_tile(spec, backend):
        raise InvalidSpec(reason)
    return OPS[spec.op].tiles.default_config(spec, backend)
