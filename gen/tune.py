"""Which tile is fastest for a spec on a GPU: candidates are compiled, timed and proven.

Nothing wins that was not held to the reference and did not give the same bits over many runs. What
is measured is saved bucket by bucket, so that a run that is stopped goes on where it was. Proofs
take many processors and the GPU, times want it alone: so a few specs are timed, then proven.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attngen.compile import Refusal, Resources
from attngen.config import BACKENDS
from attngen.errors import GpuLost
from attngen.tune_jobs import Job, renew, tile_of
from attngen.variant import Variant
from attngen.winners import Record, Timing, Winners, family

Save = Callable[[Winners], None]
TOGETHER = 8
"""Specs that are timed one after the other, and whose winners are then proven all at once."""


class Bench(Protocol):
    """What `attngen.lab.Lab` does, and in tests what stands for it."""

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Begin to compile."""

    def resources(self, variant: Variant) -> Resources | Refusal:
        """The compiler's report on a kernel."""

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        """Microseconds by kernel's name, or why it cannot be called."""

    def expect(self, variants: Iterable[Variant]) -> None:
        """Begin to hold kernels to the reference."""

    def refuted(self, variant: Variant) -> str | None:
        """Why a kernel is wrong; None where it is right."""

    def unrepeatable(self, variant: Variant, shape: Any) -> str | None:
        """Why its bits cannot be relied on; None where they can."""


@dataclass(frozen=True)
class Step:
    """One thing that was done, in words, and how far the whole is.

    Attributes:
        text: what was done.
        done: buckets that are done, of `total`.
        total: buckets that were missing when the run began.
        gone: seconds since then.
        failed: is it a fault that somebody has to look at?
    """

    text: str
    done: int
    total: int
    gone: float
    failed: bool = False

    def __str__(self) -> str:
        """A progress bar, the time that is left, and what was done."""
        full = 20 * self.done // max(self.total, 1)
        left = self.gone * (self.total - self.done) / max(self.done, 1)
        return (
            f"[{'#' * full}{'.' * (20 - full)}] {self.done}/{self.total},"
            f" {_minutes(self.gone)} gone{f', about {_minutes(left)} left' if self.done else ''}:"
            f" {'FAIL ' if self.failed else ''}{self.text}"
        )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def tune(
    jobs: Sequence[Job],
    bench: Bench,
    winners: Winners,
    save: Save,
    *,
    budget: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Step]:
    """Time and prove what is missing in `winners`; saved after each bucket and each proof.

    Args:
        jobs: the specs.
        bench: what compiles, times and proves.
        winners: what is known already; it is added to.
        save: keeps it.
        budget: seconds after which no bucket is begun that would likely take longer, with the
            proofs after it.
        clock: seconds.

    Raises:
        GpuLost: where a kernel made the GPU unusable; it is rejected, and that is saved.
    """
    renew(winners, jobs)
    known = [(job, winners.specs.setdefault(job.spec.name, Record())) for job in jobs]
    bench.prepare(v for job, record in known if job.missing(record) for v in job.left(record))
    run = _Run(known, bench, lambda: save(winners), budget, clock)
    for first in range(0, len(known), TOGETHER):
        chunk = known[first : first + TOGETHER]
        try:
            yield from run.times(chunk)
            yield from run.proves(chunk)
        except GpuLost as lost:
            for job, record in chunk:
                if lost.name in {variant.name for variant in job.tiles.values()}:
                    record.rejected[lost.name.removeprefix(f"{job.spec.name}_")] = lost.reason
            save(winners)
            raise
        if run.over:
            return


class _Run:
    """One run over specs and their records: what is done, and in how much time."""

    def __init__(
        self,
        known: Sequence[tuple[Job, Record]],
        bench: Bench,
        save: Callable[[], None],
        budget: float,
        clock: Callable[[], float],
    ) -> None:
        self.bench, self.save, self.budget, self.clock = bench, save, budget, clock
        self.start, self.over, self.done = clock(), False, 0
        self.total = sum(len(job.missing(record)) for job, record in known)
        self.longest = {"bucket": 0.0, "proofs": 0.0}
        self.timed: list[tuple[Job, Record, str]] = []

    def times(self, chunk: Iterable[tuple[Job, Record]]) -> Iterator[Step]:
        """Time the missing buckets, with nothing else on the GPU, while there is time."""
        self.timed.clear()
        for job, record in chunk:
            record.buckets = {w: timing for w, timing in record.buckets.items() if w in job.shapes}
            for i, bucket in enumerate(job.missing(record)):
                begun = self.clock()
                if begun - self.start + sum(self.longest.values()) > self.budget:
                    self.over = True
                    return
                if i == 0:
                    yield self._step(_prune(job, record, self.bench))
                _measure(job, record, bucket, self.bench)
                self.save()
                self.done += 1
                self._took("bucket", begun)
                self.timed.append((job, record, bucket))
                yield self._step(f"{job.spec.name}, {bucket}: timed")

    def proves(self, chunk: Sequence[tuple[Job, Record]]) -> Iterator[Step]:
        """Prove what is the fastest, all at once, and tell what won."""
        begun = self.clock()
        self.bench.expect({v: None for job, record in chunk for v in _leaders(job, record)})
        for job, record in chunk:
            _settle_all(job, record, self.bench)
            self.save()
        self._took("proofs", begun)
        for job, record, bucket in self.timed:
            yield self._step(_told(job, record, bucket))
        for job, record in chunk:
            if not (self.over and job.missing(record)):
                for failure in _failures(job, record):
                    yield self._step(failure, failed=True)

    def _took(self, what: str, begun: float) -> None:
        self.longest[what] = max(self.longest[what], self.clock() - begun)

    def _step(self, text: str, failed: bool = False) -> Step:
        return Step(text, self.done, self.total, self.clock() - self.start, failed)


def _prune(job: Job, record: Record, bench: Bench) -> str:
    """Reject what the compiler's report rules out, and say what is left out and why."""
    for variant in job.left(record):
        tile = tile_of(variant)
        if reason := _too_much(bench.resources(variant), tile in job.defaults):
            record.rejected[tile] = reason
    out = {**job.unfit, **record.rejected}
    text = f"{job.spec.name}: {len(job.left(record))} candidates"
    return text + "".join(f"\n    without {tile}: {why}" for tile, why in out.items())


def _too_much(report: Resources | Refusal, default: bool) -> str | None:
    """Why a kernel is not worth its time on the GPU; a default may spill, to be compared with."""
    if isinstance(report, Refusal):
        return report.reason
    if report.shared > report.shared_limit:
        return f"shared memory: {report.shared} bytes, {report.target} has {report.shared_limit}"
    return f"{report.spills} bytes spilled" if report.spills and not default else None


def _measure(job: Job, record: Record, bucket: str, bench: Bench) -> None:
    """Time all candidates on the shape of a bucket."""
    shape = job.shapes[bucket]
    left = job.left(record)
    times = bench.times(left, shape) if left else {}
    timing = Timing()
    for name, result in times.items():
        tile = name.removeprefix(f"{job.spec.name}_")
        if isinstance(result, str):
            record.rejected[tile] = result
        else:
            timing.us[tile] = result
    record.buckets[bucket] = timing


def _rankings(job: Job, record: Record) -> Iterator[tuple[list[str], list[str]]]:
    """Tiles of which one has to be proven, the fastest first, and in which buckets.

    For each bucket and for all at once, of any family and of the portable one.
    """
    known = [bucket for bucket in job.shapes if bucket in record.buckets]
    for allowed in (BACKENDS, ("triton",)):
        for bucket in known:
            us = record.buckets[bucket].us
            ranking = sorted(us, key=lambda tile: (us[tile], tile))
            yield [tile for tile in ranking if family(tile) in allowed], [bucket]
        yield [tile for tile in record.by_mean() if family(tile) in allowed], known


def _leaders(job: Job, record: Record) -> Iterator[Variant]:
    """What will have to be held to the reference, if all of it is right."""
    for tiles, _ in _rankings(job, record):
        left = [tile for tile in tiles if tile in job.tiles and tile not in record.rejected]
        if left and left[0] not in record.verified:
            yield job.tiles[left[0]]


def _settle_all(job: Job, record: Record, bench: Bench) -> None:
    """Prove tiles in the order of their times, until one of each ranking stands.

    All over again where one failed, since it may have won an earlier bucket.
    """
    before = -1
    while before != len(record.rejected):
        before = len(record.rejected)
        for tiles, buckets in list(_rankings(job, record)):
            for tile in tiles:
                if all(_prove(job, record, bucket, tile, bench) for bucket in buckets):
                    break


def _prove(job: Job, record: Record, bucket: str, tile: str, bench: Bench) -> bool:
    """Is a tile right, and are its bits the same in every run on this bucket's shape?"""
    if tile in record.rejected or tile not in job.tiles:
        return False
    variant, timing = job.tiles[tile], record.buckets[bucket]
    if tile not in record.verified:
        if reason := bench.refuted(variant):
            record.rejected[tile] = reason
            return False
        record.verified.append(tile)
    if tile not in timing.repeatable:
        if reason := bench.unrepeatable(variant, job.shapes[bucket]):
            record.rejected[tile] = reason
            return False
        timing.repeatable.append(tile)
    return True


def _told(job: Job, record: Record, bucket: str) -> str:
    """A bucket's winner beside the default tiles."""
    timing = record.buckets[bucket]
    proven = record.proven(timing)
    if not proven:
        return f"{job.spec.name}, {bucket}: no winner"
    best = timing.us[proven[0]]
    defaults = (
        f"; the default {tile} {timing.us[tile]:.1f} us, {timing.us[tile] / best:.2f} of it"
        for tile in sorted(job.defaults & set(timing.us))
    )
    return f"{job.spec.name}, {bucket}: {proven[0]} {best:.1f} us{''.join(defaults)}"


def _failures(job: Job, record: Record) -> Iterator[str]:
    """What is wrong with a spec's tiles: none that serves, or a default that may not win."""
    if not any(record.proven(timing) for timing in record.buckets.values()):
        reasons = {**job.unfit, **record.rejected}
        told = "; ".join(f"{tile}: {why}" for tile, why in reasons.items())
        yield f"{job.spec.name}: no tile serves: {told}"
    for tile in sorted(job.defaults & set(record.rejected)):
        yield f"{job.spec.name}: its default {tile} is rejected: {record.rejected[tile]}"
