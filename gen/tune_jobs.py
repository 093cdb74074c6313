"""What there is to tune: candidates and shapes of a spec, and what of them is measured already."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from attngen.buckets import words
from attngen.config import BACKENDS, Target
from attngen.ops import OPS, default_config, why_no_tile, why_not
from attngen.render import fingerprint
from attngen.trials import TRIALS
from attngen.variant import Variant
from attngen.winners import Record, Timing, Winners, family


@dataclass(frozen=True)
class Job:
    """A spec to tune.

    Attributes:
        spec: what is computed.
        tiles: the candidates by tile, as names spell it; defaults are among them.
        unfit: why a tile cannot run on the target, by tile.
        shapes: by their buckets in words.
    """

    spec: Any
    tiles: dict[str, Variant]
    unfit: dict[str, str]
    shapes: dict[str, Any]

    def missing(self, record: Record) -> list[str]:
        """The buckets in which a candidate is neither timed nor rejected."""
        return [
            bucket
            for bucket in self.shapes
            if not set(self.tiles).issubset(
                {*record.buckets.get(bucket, Timing()).us, *record.rejected, *self.unfit}
            )
        ]

    def left(self, record: Record) -> list[Variant]:
        """The candidates that nothing speaks against yet."""
        out = {*record.rejected, *self.unfit}
        return [variant for tile, variant in self.tiles.items() if tile not in out]

    @property
    def defaults(self) -> set[str]:
        """The tiles that are taken where nobody tuned."""
        backends = [b for b in BACKENDS if why_no_tile(self.spec, b) is None]
        variants = [Variant(self.spec, default_config(self.spec, b)) for b in backends]
        return {tile_of(variant) for variant in variants}


def job(spec: Any, target: Target) -> Job:
    """What tuning a spec for a target takes."""
    trial = TRIALS[spec.op]
    # The rules' estimate of shared memory is for NVIDIA's newest and too high elsewhere: what a
    # tile really takes the compiler's report tells.
    target = replace(target, shared_memory=sys.maxsize)
    configs = [config for backend in BACKENDS for config in trial.candidates(spec, backend)]
    variants = [Variant(spec, config) for config in configs]
    return Job(
        spec,
        {tile_of(v): v for v in variants},
        {tile_of(v): why for v in variants if (why := why_not(spec, v.config, target))},
        {words(trial.sizes(shape)): shape for shape in trial.shapes(spec)},
    )


def tile_of(variant: Variant) -> str:
    """The part of a kernel's name that says how it is computed."""
    return variant.name.removeprefix(f"{variant.spec.name}_")


def renew(winners: Winners, jobs: Iterable[Job]) -> None:
    """Forget what was measured of templates that have changed, and note those of today."""
    for op, backend in dict.fromkeys(
        (job.spec.op, family(tile)) for job in jobs for tile in job.tiles
    ):
        now = fingerprint(op, backend)
        if winners.templates.get(f"{op} {backend}") not in (None, now):
            for name, record in winners.specs.items():
                if _op(name) == op:
                    record.forget(backend)
        winners.templates[f"{op} {backend}"] = now


def _op(spec: str) -> str:
    """The operator of a spec's name; one operator's may begin another's."""
    return max((op for op in OPS if spec.startswith(f"{op}_")), key=len, default="")
