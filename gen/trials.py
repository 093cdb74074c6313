"""How each operator is tuned: an operator is added by a line in TRIALS.

A call is the function of the operator's name in a generated module, on what `inputs` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from attngen import (
    tiles_attention,
    tiles_decode,
    tiles_merge,
    tiles_softmax,
    tune_attention,
    tune_decode,
    tune_layouts,
    tune_merge,
    tune_softmax,
)
from attngen.config import TileConfig


@dataclass(frozen=True)
class Trial:
    """What tuning an operator takes.

    Attributes:
        candidates: of a spec and a family, the tiles to try, the default one first.
        shapes: of a spec, the shapes to time it on, in buckets of their own.
        sizes: of a shape, the named sizes that its bucket is made of; the operator's run-time
            face makes a bucket of the same ones, in the same order.
        inputs: of a spec, a shape and a device, the arguments and options of a call, in memory
            of their own. Every output is allocated by the launcher.
    """

    candidates: Callable[[Any, str], Iterable[TileConfig]]
    shapes: Callable[[Any], Iterable[Any]]
    sizes: Callable[[Any], dict[str, int]]
    inputs: Callable[[Any, Any, str], tuple[tuple[Any, ...], dict[str, Any]]]


_MERGE = Trial(
    tiles_merge.candidates,
    tune_merge.shapes,
    tune_merge.sizes,
    tune_merge.inputs,
)

_SOFTMAX = Trial(
    tiles_softmax.candidates,
    tune_softmax.shapes,
    tune_softmax.sizes,
    tune_softmax.inputs,
)

TRIALS: dict[str, Trial] = {
    "attention_fwd": Trial(
        tiles_attention.candidates,
        tune_attention.shapes,
        tune_attention.sizes,
        tune_attention.inputs,
    ),
    "attention_decode": Trial(
        tiles_decode.candidates,
        tune_decode.shapes,
        tune_decode.sizes,
        tune_decode.inputs,
    ),
    "attention_varlen": Trial(
        tiles_attention.candidates,
        tune_layouts.shapes,
        tune_attention.sizes,
        tune_layouts.varlen_inputs,
    ),
    "attention_paged": Trial(
        tiles_attention.candidates,
        tune_layouts.shapes,
        tune_attention.sizes,
        tune_layouts.paged_inputs,
    ),
    "merge_state": _MERGE,
    "merge_states": _MERGE,
    "softmax": _SOFTMAX,
    "softmax_topk": _SOFTMAX,
}
"""By operator."""
