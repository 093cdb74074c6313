"""The tune command, and what `build` takes from what was tuned."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from attngen import store, winners
from attngen.catalog import catalog
from attngen.errors import InvalidSpec
from attngen.ops import default_config
from attngen.spec import option
from attngen.variant import Variant, parse

Chosen = Callable[[dict[str, Any]], list[Variant] | None]
_TILE = ("block_m", "block_n", "num_warps", "num_stages")
_GUESS_S = {"bucket": 3.0, "spec": 12.0}
"""Seconds on an H200 for a bucket and, beside its buckets, for a spec: a guess to begin with."""

device_option = click.option(
    "--device",
    metavar="GPU",
    help="Also build the tiles that won on it: a name such as nvidia-h200, or a file of tune.",
)


def command(spec_options: Callable[[Any], Any], chosen: Chosen) -> click.Command:
    """The tune command, with the options that choose specs and what reads them."""

    @click.command()
    @spec_options
    @click.option("--budget", type=click.FloatRange(min=1), help="Seconds after which to stop.")
    @click.option("--rounds", type=click.IntRange(1), default=9, show_default=True)
    @click.option(
        "--file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Where winners are kept; that of the package where it is used from its checkout.",
    )
    def tune(budget: float | None, rounds: int, file: Path | None, **options: Any) -> None:
        """Time candidate tiles on this GPU, prove the fastest, and keep the winners as data.

        The specs are those of the options, of the kernels named, or of the catalog. What was
        measured is kept after each shape: stopped by --budget or Ctrl-C, the same command goes on.
        """
        from attngen.device import machine_to_tune

        machine = machine_to_tune()
        specs = _specs(options, chosen)
        path = file or _default_file(machine.slug)
        sys.exit(_run(specs, machine, path, rounds, budget))

    return tune


def _specs(options: dict[str, Any], chosen: Chosen) -> list[Any]:
    """The specs that options and names ask for, or those of the catalog, each once."""
    for name in _TILE:
        if options.get(name) is not None:
            raise click.UsageError(f"{option(name)} is no option of tune: it tries all tiles")
    op = options["op"]
    source = click.get_current_context().get_parameter_source("op")
    named = source is not None and source.name == "COMMANDLINE"
    variants = chosen(options)
    if variants is None:
        variants = [v for v in catalog().values() if not named or v.spec.op == op]
    return list(dict.fromkeys(v.spec for v in variants))


def _default_file(slug: str) -> Path:
    if not store.in_checkout():
        raise click.UsageError("--file is missing: outside a checkout it says where winners go")
    return winners.FOLDER / f"{slug}.json"


def _run(specs: list[Any], machine: Any, path: Path, rounds: int, budget: float | None) -> int:
    """Tune with a progress line a step; 1 where something is wrong, else 0."""
    import torch

    from attngen.lab import Lab
    from attngen.tune import tune
    from attngen.tune_jobs import job

    _check_writable(path)
    jobs = [job(spec, machine.target) for spec in specs]
    known = _known(path, machine)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(machine.target, Path(folder), rounds=rounds)
        try:
            steps = tune(
                *(jobs, lab, known, lambda now: _save(path, now)),
                budget=budget or float("inf"),
            )
            click.echo(_estimate(jobs, known, machine))
            for step in steps:
                failed |= step.failed
                click.echo(str(step))
        except KeyboardInterrupt:
            _save(path, known)
            failed = True
        except torch.OutOfMemoryError as error:
            raise click.ClickException(f"the GPU's memory is full: {error}") from error
        finally:
            lab.close()
    click.echo(_end(jobs, known, machine, path))
    return int(failed)


def _save(path: Path, known: winners.Winners) -> None:
    try:
        winners.write(path, known)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> click.BadParameter:
    return click.BadParameter(f"cannot write to {path}: {error.strerror}", param_hint="--file")


def _check_writable(path: Path) -> None:
    """Find out before the GPU works for nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _known(path: Path, machine: Any) -> winners.Winners:
    """What a file holds already; one of no use here is put aside, and the reason is said."""
    if not path.exists():
        return winners.Winners(machine)
    try:
        return winners.read(path, machine)
    except winners.Miss as miss:
        aside = path.with_name(f"{path.name}.old")
        path.replace(aside)
        click.echo(f"begun anew: {miss}; it is kept as {aside}", err=True)
        return winners.Winners(machine)


def _missing(jobs: Iterable[Any], known: winners.Winners) -> int:
    records = ((job, known.specs.get(job.spec.name, winners.Record())) for job in jobs)
    return sum(len(job.missing(record)) for job, record in records)


def _estimate(jobs: list[Any], known: winners.Winners, machine: Any) -> str:
    missing = _missing(jobs, known)
    open_jobs = sum(_missing([job], known) > 0 for job in jobs)
    seconds = missing * _GUESS_S["bucket"] + open_jobs * _GUESS_S["spec"]
    return (
        f"{machine.device}: {len(jobs)} specs, {missing} shapes to time of"
        f" {sum(len(job.shapes) for job in jobs)}, perhaps {max(1, round(seconds / 60))} minutes"
    )


def _end(jobs: list[Any], known: winners.Winners, machine: Any, path: Path) -> str:
    missing = _missing(jobs, known)
    if missing:
        return f"{missing} shapes are left; what was timed is in {path}, the same command goes on"
    device = machine.slug if path.parent == winners.FOLDER else path
    return f"all is timed; build the winners with: attngen build --device {device}"


def with_winners(variants: list[Variant], target: str | None, device: str | None) -> list[Variant]:
    """Variants, and what won for their specs on a device, or on the devices of a target.

    A tile that somebody chose stands alone: only beside default tiles are there winners.
    """
    found = dict.fromkeys(variants)
    for tuned in _tuned(target, device):
        for variant in variants:
            if variant.config == default_config(variant.spec, variant.config.backend):
                names = tuned.to_build(variant.spec.op, variant.spec.name)
                found |= dict.fromkeys(filter(None, map(_variant, names)))
    return list(found)


def _variant(name: str) -> Variant | None:
    """The variant of a name; None where today's templates cannot do it."""
    try:
        return parse(name)
    except InvalidSpec:
        return None


def _tuned(target: str | None, device: str | None) -> list[winners.Winners]:
    if device is None:
        paths = winners.places() if target else []
    elif device.endswith(".json"):
        paths = [Path(device)]
    else:
        paths = [path for path in winners.places(device) if path.exists()][:1]
    if device and not paths:
        known = ", ".join(path.stem for path in winners.places()) or "none"
        raise click.UsageError(f"--device: got {device}, tuned are {known}")
    found = []
    for path in paths:
        try:
            found.append(winners.read(path))
        except winners.Miss as miss:
            if device:
                raise click.UsageError(f"--device: {miss}") from None
            click.echo(f"no winners from {miss}", err=True)
    return [tuned for tuned in found if device or tuned.machine.target_name == target]
