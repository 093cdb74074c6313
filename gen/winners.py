"""Tuned tiles as data: a file for each GPU, which `attngen tune` writes and a look-up reads.

A file that is not of this GPU, Triton and schema, or that is damaged, is a miss, with one line that
says why; times of a family whose templates have changed are passed over likewise.
"""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from attngen.buckets import Bucket, nearest, of_words
from attngen.config import BACKENDS
from attngen.machine import Machine
from attngen.render import fingerprint
from attngen.winners_file import hold

SCHEMA = 1
PATH_VARIABLE = "ATTNGEN_TUNED"
FOLDER = Path(__file__).resolve().parent / "tuned"
log = logging.getLogger("attngen")


class Miss(LookupError):
    """A file of winners is of no use here; the message says why in one line."""


@dataclass
class Timing:
    """One shape bucket of a spec.

    Attributes:
        us: microseconds of a call by tile, such as {"m64_n32_w4_s4": 41.5}.
        repeatable: the tiles that gave the same bits in every one of many runs.
    """

    us: dict[str, float] = field(default_factory=dict)
    repeatable: list[str] = field(default_factory=list)


@dataclass
class Record:
    """What is known of a spec's tiles.

    Attributes:
        verified: the tiles that were held to the reference and passed.
        rejected: why a tile may not win, by tile.
        buckets: the timings, by the bucket in words.
    """

    verified: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    buckets: dict[str, Timing] = field(default_factory=dict)

    def proven(self, timing: Timing) -> list[str]:
        """The tiles that may win a bucket, the fastest first."""
        allowed = set(self.verified).intersection(timing.us, timing.repeatable)
        return sorted(allowed.difference(self.rejected), key=lambda tile: (timing.us[tile], tile))

    def ranking(self, bucket: Bucket | None) -> list[str]:
        """The tiles that may be taken, the best first.

        Args:
            bucket: of the nearest one to it that has any; without it, those that are proven in
                every bucket, by the geometric mean of their times: one answer for every shape.
        """
        proven = {of_words(words): self.proven(timing) for words, timing in self.buckets.items()}
        if bucket is not None:
            best = nearest(bucket, (known for known, tiles in proven.items() if tiles))
            return [] if best is None else proven[best]
        return [t for t in self.by_mean() if all(t in tiles for tiles in proven.values())]

    def by_mean(self) -> list[str]:
        """The tiles that are timed in every bucket and not rejected, by their geometric mean."""
        timings = [timing.us for timing in self.buckets.values()]
        common = set.intersection(*map(set, timings)) if timings else set()
        cost = {t: sum(math.log(us[t]) for us in timings) for t in common.difference(self.rejected)}
        return sorted(cost, key=lambda tile: (cost[tile], tile))

    def forget(self, backend: str) -> None:
        """Drop what is known of a family's tiles."""
        for timing in self.buckets.values():
            timing.us = {t: us for t, us in timing.us.items() if family(t) != backend}
            timing.repeatable = [t for t in timing.repeatable if family(t) != backend]
        self.verified = [tile for tile in self.verified if family(tile) != backend]
        self.rejected = {t: why for t, why in self.rejected.items() if family(t) != backend}


@dataclass
class Winners:
    """A file's content.

    Attributes:
        machine: what it holds for.
        templates: by "<op> <backend>", the fingerprint of the templates that were measured.
        specs: by a spec's name.
    """

    machine: Machine
    templates: dict[str, str] = field(default_factory=dict)
    specs: dict[str, Record] = field(default_factory=dict)

    def ranking(self, op: str, spec: str, bucket: Bucket | None) -> list[str]:
        """Names of kernels of a spec that were measured and proven, the best first."""
        if spec not in self.specs:
            return []
        tiles = self.specs[spec].ranking(bucket)
        return [f"{spec}_{t}" for t in tiles if not stale(self, op, family(t))]

    def to_build(self, op: str, spec: str) -> list[str]:
        """Names of the kernels that a look-up may want: for each bucket, and for all at once.

        The fastest of any family, and the fastest portable one for tensors that others refuse.
        """
        buckets = [of_words(words) for words in self.specs.get(spec, Record()).buckets]
        found: dict[str, None] = {}
        for bucket in (*buckets, None):
            ranking = self.ranking(op, spec, bucket)
            portable = [name for name in ranking if family(name) == "triton"]
            found |= dict.fromkeys([*ranking[:1], *portable[:1]])
        return list(found)


def family(tile: str) -> str:
    """The backend of a tile as names spell it."""
    return next((b for b in BACKENDS if tile.endswith(f"_{b}")), "triton")


def stale(winners: Winners, op: str, backend: str) -> bool:
    """Are the times of a family those of other templates than there are now? Said once."""
    measured = winners.templates.get(f"{op} {backend}", "")
    return measured != _now(op, backend) and _say_stale(winners.machine.device, op, backend)


def _now(op: str, backend: str) -> str | None:
    try:
        return fingerprint(op, backend)
    except (jinja2.TemplateNotFound, KeyError):
        return None


@cache
def _say_stale(device: str, op: str, backend: str) -> bool:
    log.warning(
        "winners of %s: the templates of %s (%s) have changed since they were tuned, so default"
        " tiles are used; tune anew with: attngen tune --op %s",
        *(device, op, backend, op),
    )
    return True


def read(path: Path, machine: Machine | None = None) -> Winners:
    """The winners that a file has for a machine; for the one it names where none is given.

    Raises:
        Miss: where it is of another GPU, Triton or schema, damaged, or cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Miss(f"{path}: it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Miss(f"{path}: it is no text") from None
    if not text.strip():
        raise Miss(f"{path}: it is empty")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Miss(f"{path}: it is truncated or no JSON: {error}") from None
    if reason := hold(data, SCHEMA, asdict(machine) if machine else {}):
        raise Miss(f"{path}: {reason}")
    machine = Machine(**{f.name: data[f.name] for f in fields(Machine)})
    specs = {
        name: Record(
            record["verified"],
            record["rejected"],
            {words: Timing(**timing) for words, timing in record["buckets"].items()},
        )
        for name, record in data["specs"].items()
    }
    return Winners(machine, data["templates"], specs)


def write(path: Path, winners: Winners) -> None:
    """Write winners in one step: whoever reads meanwhile finds a whole file.

    Raises:
        OSError: where it cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(as_text(winners), encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def as_text(winners: Winners) -> str:
    """The file's text, a bucket a line."""
    head = {"schema": SCHEMA, **asdict(winners.machine), "templates": winners.templates}
    return f'{json.dumps(head, indent=1)[:-2]},\n "specs": {_lines(winners.specs, 1)}\n}}\n'


def _lines(values: dict[str, Any], depth: int) -> str:
    """Records and their buckets indented, what is in a bucket on one line."""
    rows = []
    for name, value in values.items():
        if isinstance(value, Record):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            parts["buckets"] = {words: asdict(timing) for words, timing in value.buckets.items()}
            text = _lines(parts, depth + 1)
        elif name == "buckets":
            text = _lines(value, depth + 1)
        else:
            text = json.dumps(value)
        rows.append(f"{' ' * (depth + 1)}{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}" if rows else "{}"


def places(slug: str = "*") -> list[Path]:
    """Where a GPU's file is looked for: what ATTNGEN_TUNED lists, then the package.

    What is listed is a file that ends in .json, or a folder of files named after their GPUs.
    Without a slug, all files that are there.
    """
    listed = [Path(p) for p in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if p]
    found: list[Path] = []
    for place in (*listed, FOLDER):
        if place.suffix == ".json":
            found.append(place)
        else:
            found += sorted(place.glob("*.json")) if slug == "*" else [place / f"{slug}.json"]
    return found


def find(machine: Machine) -> Winners | None:
    """The winners for a machine; None, which is said once, where it has never been tuned."""
    return _find(machine, tuple(places(machine.slug)))


@cache
def _find(machine: Machine, paths: tuple[Path, ...]) -> Winners | None:
    for path in paths:
        if path.exists():
            try:
                return read(path, machine)
            except Miss as miss:
                log.warning("no winners from %s", miss)
    log.warning(
        "%s has not been tuned: default tiles are used; `attngen tune` looks for faster ones",
        machine.device,
    )
    return None
