"""Where tuning compiles, runs and times kernels: in processes, in a scratch folder, on a GPU."""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from attngen import compile as compiler
from attngen import finder, store, timing, verify
from attngen.compile import Refusal, Resources
from attngen.config import Target
from attngen.errors import GpuLost
from attngen.outputs import nan_filled_outputs
from attngen.trials import TRIALS
from attngen.variant import Variant

RUNS = 50
"""How often a kernel has to give the same bits."""
ROTATED_BYTES = 2**28
"""Inputs rotate through at least this much memory, and through twice the L2 cache."""
LEAST_SETS, MOST_SETS = 2, 32
MOST_PROCESSES = 32
MOST_PROVERS = 16
"""Each has a context of its own on the GPU, of about half a gigabyte."""
COMPILE_S = 300
"""How long to wait for one kernel's compiler."""
FIRST_ROUNDS = 3
"""After this many rounds, without rest, only what is near the fastest is timed further."""
SLOWER = 1.25
Report = Resources | Refusal


class Lab:
    """Kernels of one target, compiled ahead and run on one device.

    Args:
        target: what to compile for.
        folder: where candidates are rendered; nobody else's kernels are in it.
        device: "cuda", or "cpu" under Triton's interpreter.
        rounds: in which candidates take turns; a time is the median over them.
    """

    def __init__(self, target: Target, folder: Path, device: str = "cuda", rounds: int = 9) -> None:
        """Start no process and touch no GPU yet."""
        self.target, self.folder, self.device, self.rounds = target, folder, device, rounds
        self.pool: ProcessPoolExecutor | None = None
        self.reports: dict[Variant, Future[Report]] = {}
        self.provers: ProcessPoolExecutor | None = None
        self.proofs: dict[Variant, Future[str | None]] = {}

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Begin to compile, in this order, with a core left over for timing."""
        self.pool = _pool(min(MOST_PROCESSES, max(1, (os.cpu_count() or 1) - 1)))
        for variant in variants:
            self.reports[variant] = self.pool.submit(compiler.report, (variant, self.target))

    def resources(self, variant: Variant) -> Report:
        """The compiler's report on a kernel. Its binary is in Triton's cache from then on."""
        try:
            return self.reports[variant].result(COMPILE_S)
        except BrokenProcessPool:
            return self._alone(variant)
        except TimeoutError:
            return Refusal(variant.name, self.target.name, f"still compiling after {COMPILE_S} s")
        except Exception as error:
            return Refusal(variant.name, self.target.name, _one_line(error))

    def _alone(self, variant: Variant) -> Report:
        """Compile one kernel in a process of its own, after some kernel's compiler crashed."""
        self.close()
        del self.reports[variant]
        alone = _pool(1)
        try:
            report = alone.submit(compiler.report, (variant, self.target)).result()
        except BrokenProcessPool:
            report = Refusal(variant.name, self.target.name, "its compiler crashed")
        finally:
            alone.shutdown(wait=False)
        self.prepare([v for v, future in self.reports.items() if not _succeeded(future)])
        return report

    def expect(self, variants: Iterable[Variant]) -> None:
        """Begin to hold kernels to the reference, in processes that share the GPU."""
        self.proofs.clear()
        if self.provers is None:
            # One thread each for the reference: there are as many processes as processors.
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            self.provers = _pool(min(MOST_PROVERS, os.cpu_count() or 1))
        for variant in variants:
            arguments = (variant, self.target, self.folder, self.device)
            self.proofs[variant] = self.provers.submit(_refuted_or_dead, arguments)

    def refuted(self, variant: Variant) -> str | None:
        """Why a kernel is wrong, held to the reference on the short cases; None where it is right.

        The reference takes the GPU's time on a long one; `attngen verify` has those too.
        """
        if variant in self.proofs:
            try:
                return self.proofs[variant].result()
            except BrokenProcessPool:
                # Some kernel took its process with it: which one shows where it is alone.
                self._end_proofs()
        return self.refuted_here(variant)

    def refuted_here(self, variant: Variant) -> str | None:
        """The same in this process."""
        try:
            report = verify.verify(self.module(variant), variant, self.device, long=False)
        except Exception as error:
            return self._failure(variant, error)
        failures = [
            f"{case}: {failure}"
            for case, verdict in report.verdicts.items()
            for failure in verdict.failures
        ]
        return failures[0] if failures else None

    def unrepeatable(self, variant: Variant, shape: Any) -> str | None:
        """Why a kernel's bits on a shape cannot be relied on; None where RUNS runs give the same.

        Its outputs are NaN before each run, so that what it leaves unwritten shows.
        """
        arguments, options = TRIALS[variant.spec.op].inputs(variant.spec, shape, self.device)
        first: list[torch.Tensor] = []
        try:
            call = self._launcher(variant)
            for run in range(RUNS):
                with nan_filled_outputs():
                    outputs = _tensors(call(*arguments, **options))
                if not first:
                    first = outputs
                if any(bool(x.isnan().any()) for x in outputs):
                    return "part of its output was not written, or is NaN"
                if not all(map(_same_bits, first, outputs)):
                    return f"run {run + 1} gave other bits than the first"
        except Exception as error:
            return self._failure(variant, error)
        return None

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        """Microseconds of a call by kernel's name, or why it cannot be called; in turns."""
        spec = variants[0].spec
        sets = self._sets(spec, shape)
        found: dict[str, float | str] = {}
        graphs: dict[str, timing.Graph] = {}
        for variant in variants:
            try:
                graphs[variant.name] = timing.captured(
                    partial(_each, self._launcher(variant), sets)
                )
            except Exception as error:
                found[variant.name] = self._failure(variant, error)
        values = timing.interleaved(graphs, FIRST_ROUNDS, rest=0.0)
        medians = {name: statistics.median(times) for name, times in values.items()}
        limit = SLOWER * min(medians.values(), default=0.0)
        close = {name: graph for name, graph in graphs.items() if medians[name] <= limit}
        values = timing.interleaved(close, self.rounds)
        medians |= {name: statistics.median(times) for name, times in values.items()}
        found |= {name: round(1e3 * ms / len(sets), 3) for name, ms in medians.items()}
        graphs.clear()
        close.clear()
        gc.collect()
        torch.cuda.empty_cache()
        return found

    def module(self, variant: Variant) -> ModuleType:
        """A candidate, rendered into the scratch folder and imported from there."""
        store.write(variant, self.folder)
        return finder.load(variant.name, [self.folder])

    def close(self) -> None:
        """Compile and prove no more."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
        self._end_proofs()

    def _end_proofs(self) -> None:
        """Prove in this process alone from now on, or in new ones."""
        self.proofs.clear()
        if self.provers is not None:
            self.provers.shutdown(wait=True, cancel_futures=True)
            self.provers = None

    def _launcher(self, variant: Variant) -> Any:
        return getattr(self.module(variant), variant.spec.op)

    def _sets(self, spec: Any, shape: Any) -> list[Any]:
        """Inputs of as many calls as it takes to leave nothing in the cache for the next."""
        inputs = TRIALS[spec.op].inputs
        first = inputs(spec, shape, self.device)
        taken = sum(x.nbytes for x in [*first[0], *first[1].values()] if hasattr(x, "nbytes"))
        rotated = max(ROTATED_BYTES, 2 * _l2_bytes())
        count = min(max(math.ceil(rotated / max(taken, 1)), LEAST_SETS), MOST_SETS)
        return [first, *(inputs(spec, shape, self.device) for _ in range(count - 1))]

    def _failure(self, variant: Variant, error: Exception) -> str:
        """The error in one line.

        Raises:
            GpuLost: where the GPU takes no more work from this process.
            torch.OutOfMemoryError: as it came: that is not the kernel's fault.
        """
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        reason = _one_line(error)
        if self.device != "cpu":
            try:
                torch.cuda.synchronize()
            except Exception:
                raise GpuLost(variant.name, reason) from error
        return reason


def _refuted_or_dead(arguments: tuple[Variant, Target, Path, str]) -> str | None:
    """What a process for proofs does; one whose GPU is lost is of no more use, and ends."""
    variant, target, folder, device = arguments
    try:
        return Lab(target, folder, device).refuted_here(variant)
    except GpuLost:
        os._exit(1)


def _pool(workers: int) -> ProcessPoolExecutor:
    context = get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=compiler.silence)


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _succeeded(report: Future[Report]) -> bool:
    return report.done() and not report.cancelled() and report.exception() is None


def _l2_bytes() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def _each(call: Any, sets: Sequence[Any]) -> None:
    for arguments, options in sets:
        call(*arguments, **options)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
