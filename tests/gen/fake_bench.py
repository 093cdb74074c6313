"""A compiler, a clock and a GPU that are made up, for the tests of tuning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from attngen.compile import Refusal, Resources
from attngen.errors import GpuLost
from attngen.machine import Machine
from attngen.tiles_attention import shared_memory
from attngen.variant import Variant

H200 = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")


@dataclass
class FakeBench:
    """A GPU on which tile `t` takes us[t] microseconds, 100 where nothing is said.

    A measurement takes `cost` seconds of the clock.
    """

    us: dict[str, float] = field(default_factory=dict)
    by_bucket: dict[int, dict[str, float]] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    racy: dict[str, set[int]] = field(default_factory=dict)
    spills: set[str] = field(default_factory=set)
    too_large: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    lost: str = ""
    unlaunched: set[str] = field(default_factory=set)
    cost: float = 10.0
    now: float = 0.0
    timed: list[tuple[str, int]] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    interrupt_at: int = -1
    machine: Machine = H200

    def clock(self) -> float:
        return self.now

    def prepare(self, variants: Iterable[Variant]) -> None:
        self.prepared = [v.name for v in variants]

    def resources(self, variant: Variant) -> Resources | Refusal:
        assert variant.name in self.prepared
        if tile(variant) in self.refused:
            return Refusal(variant.name, "sm_90", "the compiler does not want to")
        shared = shared_memory(variant.spec, variant.config)
        if tile(variant) in self.too_large:
            shared = 300_000
        spills = 64 if tile(variant) in self.spills else 0
        target = self.machine.target
        return Resources(variant.name, target.name, 255, spills, shared, target.shared_memory)

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        if len(self.timed) == self.interrupt_at:
            raise KeyboardInterrupt
        self.now += self.cost
        self.timed.append((variants[0].spec.name, shape.seqlen_q))
        if self.lost in map(tile, variants):
            name = next(v.name for v in variants if tile(v) == self.lost)
            raise GpuLost(name, "an illegal memory access was encountered")
        us = {**self.us, **self.by_bucket.get(shape.seqlen_q, {})}
        return {
            v.name: "OutOfResources: shared memory"
            if tile(v) in self.unlaunched
            else us.get(tile(v), 100.0 + i)
            for i, v in enumerate(variants)
        }

    def expect(self, variants: Iterable[Variant]) -> None:
        self.expected += [tile(variant) for variant in variants]

    def refuted(self, variant: Variant) -> str | None:
        self.proofs.append(f"refuted {tile(variant)}")
        return "whole tiles: o is wrong" if tile(variant) in self.wrong else None

    def unrepeatable(self, variant: Variant, shape: Any) -> str | None:
        self.proofs.append(f"repeated {tile(variant)}")
        racy = shape.seqlen_q in self.racy.get(tile(variant), set())
        return "run 7 gave other bits than the first" if racy else None


def tile(variant: Variant) -> str:
    return variant.name.removeprefix(f"{variant.spec.name}_")
