"""Which tile is fastest for a spec on a GPU: candidates are compiled, timed and proven.

Nothing wins that was not held to the reference and did not give the same bits over many runs. What
is measured is saved bucket by bucket, so that a run that is stopped goes on where it was.
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


class Bench(Protocol):
    """What `attngen.lab.Lab` does, and in tests what stands for it."""

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Begin to compile."""

    def resources(self, variant: Variant) -> Resources | Refusal:
        """The compiler's report on a kernel."""

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        """Microseconds by kernel's name, or why it cannot be called."""

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
    """Time and prove what is missing in `winners`, spec by spec; saved after each bucket.

    Args:
        jobs: the specs.
        bench: what compiles and times.
        winners: what is known already; it is added to.
        save: keeps it.
        budget: seconds after which no bucket is begun that would likely take longer.
        clock: seconds.

    Raises:
        GpuLost: where a kernel made the GPU unusable; it is rejected, and that is saved.
    """
    start, done, longest = clock(), 0, 0.0
    renew(winners, jobs)
    records = [winners.specs.setdefault(job.spec.name, Record()) for job in jobs]
    open_jobs = [(job, r) for job, r in zip(jobs, records, strict=True) if job.missing(r)]
    total = sum(len(job.missing(record)) for job, record in open_jobs)
    bench.prepare(variant for job, record in open_jobs for variant in job.left(record))
    for job, record in zip(jobs, records, strict=True):
        record.buckets = {w: timing for w, timing in record.buckets.items() if w in job.shapes}
        missing = job.missing(record)
        if missing and clock() - start + longest <= budget:
            yield Step(_prune(job, record, bench), done, total, clock() - start)
        try:
            for bucket in missing:
                begun = clock()
                if begun - start + longest > budget:
                    return
                _measure(job, record, bucket, bench)
                save(winners)
                done, longest = done + 1, max(longest, clock() - begun)
                yield Step(_told(job, record, bucket), done, total, clock() - start)
            _settle_all(job, record, bench)
        except GpuLost as lost:
            record.rejected[lost.name.removeprefix(f"{job.spec.name}_")] = lost.reason
            save(winners)
            raise
        save(winners)
        for failure in _failures(job, record):
            yield Step(failure, done, total, clock() - start, failed=True)


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
    """Time all candidates on the shape of a bucket, and prove the fastest."""
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
    _settle(job, record, bucket, bench)


def _settle(job: Job, record: Record, bucket: str, bench: Bench) -> None:
    """Prove tiles in the order of their times, until one of any family and a portable one stand."""
    us = record.buckets[bucket].us
    for allowed in (BACKENDS, ("triton",)):
        for tile in sorted(us, key=lambda tile: (us[tile], tile)):
            if family(tile) in allowed and _prove(job, record, bucket, tile, bench):
                break


def _settle_all(job: Job, record: Record, bench: Bench) -> None:
    """Settle every bucket again, since a tile may have failed after it won an earlier one.

    Then the same for the one tile that serves all shapes.
    """
    known = [bucket for bucket in job.shapes if bucket in record.buckets]
    before = -1
    while before != len(record.rejected):
        before = len(record.rejected)
        for bucket in known:
            _settle(job, record, bucket, bench)
        for allowed in (BACKENDS, ("triton",)):
            for tile in record.by_mean():
                if family(tile) in allowed and all(
                    _prove(job, record, bucket, tile, bench) for bucket in known
                ):
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
