"""What tuning gained, and what another GPU's winners would cost: python docs/tuned_tables.py.

It reads the files that `attngen tune` writes, those of the package where the command names none,
and prints Markdown. No GPU is needed, since all times come from the files.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attngen import winners
from attngen.config import BACKENDS, TARGETS, Target
from attngen.ops import default_config, why_no_tile, why_not
from attngen.spec import Spec
from attngen.variant import Variant, parse
from attngen.winners import Record, Timing, Winners


@dataclass(frozen=True)
class Cell:
    """One spec on one shape bucket: its times, and the tiles that may win, the fastest first."""

    spec: Spec
    us: dict[str, float]
    proven: list[str]

    def variant(self, tile: str) -> Variant:
        """The kernel of a tile."""
        return parse(f"{self.spec.name}_{tile}")

    def default(self, backends: Iterable[str]) -> str | None:
        """The tile of an untuned call, of the first of the families that can do the spec."""
        for backend in backends:
            if why_no_tile(self.spec, backend) is None:
                variant = Variant(self.spec, default_config(self.spec, backend))
                return variant.name.removeprefix(f"{self.spec.name}_")
        return None


def cells(tuned: Winners) -> Iterator[Cell]:
    """Every bucket of every spec that has a winner."""
    for name, record in tuned.specs.items():
        for timing in record.buckets.values():
            if proven := record.proven(timing):
                spec = parse(f"{name}_{proven[0]}").spec
                yield Cell(spec, _allowed(record, timing), proven)


def _allowed(record: Record, timing: Timing) -> dict[str, float]:
    return {tile: us for tile, us in timing.us.items() if tile not in record.rejected}


def gains(tuned: Winners) -> list[str]:
    """How much faster than the default the winners are: one row a family and dtype."""
    lines = [
        "| family | dtype | shapes | where the default wins | gain, mean | gain, largest |",
        "|---|---|---|---|---|---|",
    ]
    families = {"portable": ("triton",), "what a call gets": tuple(reversed(BACKENDS))}
    for family, backends in families.items():
        found: dict[str, list[float]] = {}
        for cell in cells(tuned):
            default = cell.default(backends)
            best = next((t for t in cell.proven if winners.family(t) in backends), None)
            if best and default in cell.us:
                ratio = cell.us[default] / cell.us[best]
                found.setdefault(f"{cell.spec.op} {cell.spec.dtype}", []).append(ratio)
        for dtype, ratios in found.items():
            kept = sum(ratio == 1 for ratio in ratios)
            lines.append(
                f"| {family} | {dtype} | {len(ratios)} | {kept} | {_mean(ratios):.2f}"
                f" | {max(ratios):.2f} |"
            )
    return lines


def elsewhere(tuned: Winners) -> list[str]:
    """What other limits than this GPU's make of its winners, and the other way round.

    A winner does not fit where its shared memory or its family is not to be had, by the rules'
    estimate, which is for NVIDIA: AMD's compiler takes far less. The cost is that
    of a file that was tuned under the other GPU's limits and used on this one: the time of the
    fastest tile that fits there, over that of this GPU's winner.
    """
    lines = [
        "| limits of | shapes | winners that do not fit there | why"
        " | cost of its winners here, mean | largest |",
        "|---|---|---|---|---|---|",
    ]
    everything = list(cells(tuned))
    for target in (target for target in TARGETS.values() if target.backend == "cuda"):
        reasons = [
            reason for cell in everything if (reason := _unfit(cell, cell.proven[0], target))
        ]
        costs = [cost for cell in everything if (cost := _cost(cell, target)) is not None]
        lines.append(
            f"| {target.name} | {len(everything)} | {len(reasons)} | {_kinds(reasons)}"
            f" | {f'{_mean(costs):.2f} | {max(costs):.2f}' if costs else 'none fits | none fits'} |"
        )
    return lines


def _unfit(cell: Cell, tile: str, target: Target) -> str | None:
    return why_not(cell.spec, cell.variant(tile).config, target)


def _cost(cell: Cell, target: Target) -> float | None:
    fitting = [us for tile, us in cell.us.items() if _unfit(cell, tile, target) is None]
    best = cell.us[cell.proven[0]]
    return max(1.0, min(fitting) / best) if fitting else None


def _kinds(reasons: list[str]) -> str:
    kinds = [reason.split(":")[0] for reason in reasons]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "-"


def _mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def page(paths: Iterable[Path]) -> str:
    """The tables of some files."""
    parts = []
    for path in paths:
        tuned = winners.read(path)
        machine = tuned.machine
        parts += [f"## {machine.device}, Triton {machine.triton}", "", *gains(tuned), ""]
        parts += [*elsewhere(tuned), ""]
    return "\n".join(parts) if parts else "No GPU has been tuned: `attngen tune` does it.\n"


if __name__ == "__main__":
    print(page([Path(word) for word in sys.argv[1:]] or winners.places()), end="")
