"""One cell of a benchmark: kernels and peers that do the same work on the same inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from attngen import finder, store
from attngen.spec import Spec
from attngen.timing import Call, timed_speeds
from attngen.variant import parse


@dataclass(frozen=True)
class Cell:
    """What is compared.

    Attributes:
        spec: what the kernels compute.
        shape: sizes by name, as in the results format.
        metric: "tflops" or "tbps".
        work: FLOPs or bytes of one call.
        kernels: calls of the built kernels, by name.
        peers: makes the calls of the peers, by name.
        bounds: calls that move as many bytes and do less: what the GPU allows.
    """

    spec: Spec
    shape: dict[str, int]
    metric: str
    work: float
    kernels: dict[str, Call]
    peers: Callable[[], dict[str, Call]]
    bounds: dict[str, Call] = field(default_factory=dict)

    def record(self, rounds: int) -> dict[str, Any]:
        """The cell in the results format.

        Each call is captured in a graph and timed once a round, in turn; the value is the median of
        the fastest kernel, and `ratio` the median over the rounds of its speed over that of the
        fastest peer; `tiles` has every kernel, `of_bounds` the ratios to the bounds.
        """
        peers = self.peers()
        calls = {**self.kernels, **peers, **self.bounds}
        speeds = timed_speeds(calls, self.work, rounds)
        digits = 1 if self.metric == "tflops" else 3
        medians = {name: round(statistics.median(all_), digits) for name, all_ in speeds.items()}
        best = max((name for name in self.kernels if name in medians), key=medians.__getitem__)
        best_peer = max((name for name in peers if name in medians), key=medians.__getitem__)
        record = {
            "op": self.spec.op,
            "variant": best,
            "dtype": self.spec.dtype,
            "shape": self.shape,
            "causal": getattr(self.spec, "causal", False),
            "metric": self.metric,
            "value": medians[best],
            "peers": {name: medians[name] for name in peers if name in medians},
            "best_peer": best_peer,
            "ratio": _ratio(speeds, best, best_peer),
            "tiles": {name: medians[name] for name in self.kernels if name in medians},
        }
        bounds = {name: _ratio(speeds, best, name) for name in self.bounds if name in medians}
        return record | ({"of_bounds": bounds} if bounds else {})


def _ratio(speeds: dict[str, list[float]], name: str, other: str) -> float:
    rounds = zip(speeds[name], speeds[other], strict=True)
    return round(statistics.median(a / b for a, b in rounds), 3)


def built(spec: Spec, backend: str, call: Callable[[ModuleType], Call]) -> dict[str, Call]:
    """A call of every kernel of a family that is built for a spec, by name."""
    names = {name for folder in store.search_path() for name in store.names(folder)}
    variants = {name: parse(name) for name in names}
    return {
        name: call(finder.load(name))
        for name, variant in sorted(variants.items())
        if variant.spec == spec and variant.config.backend == backend
    }
