"""The command line: options to a call, results to lines; each command's work has its own module."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from attngen import cli_tune, store
from attngen.catalog import catalog
from attngen.cli_roofline import roofline
from attngen.cli_specs import OUT, chosen, folder_of, spec_options
from attngen.config import BACKENDS, TARGETS
from attngen.errors import CannotCompile, GpuLost, InvalidSpec, NoGPU, NotGenerated
from attngen.ops import OPS
from attngen.render import render
from attngen.variant import parse

Command = Callable[..., Any]
_EXTRAS = dict.fromkeys(("torch", "triton", "numpy"), "kernels") | {"matplotlib": "plot"}


class _Group(click.Group):
    """Turns the errors that a user can mend into one line and the exit code of wrong usage."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (InvalidSpec, NotGenerated) as error:
            raise click.UsageError(str(error)) from error
        except (NoGPU, CannotCompile, GpuLost) as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            if error.name not in _EXTRAS:
                raise
            raise click.ClickException(
                f"{error.name} is not installed, and this command needs it;"
                f" install it with: pip install 'attngen[{_EXTRAS[error.name]}]'"
            ) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="attngen")
def main() -> None:
    """Generate, check, verify and compile attention kernels."""


@main.command()
@spec_options
@OUT
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    help="Also what was tuned for it; sm_90: the Hopper kernel where there is one.",
)
@cli_tune.device_option
def build(out: Path | None, target: str | None, device: str | None, **options: Any) -> None:
    """Render kernels into a folder: those named, those the options ask for, or the catalog."""
    folder = folder_of(out)
    variants = chosen(options, target) or list(catalog().values())
    variants = cli_tune.with_winners(variants, target, device)
    try:
        for variant in variants:
            written = store.write(variant, folder)
            click.echo(f"{'wrote' if written else 'unchanged'} {folder / variant.name}.py")
    except OSError as error:
        raise click.BadParameter(
            f"cannot write to {folder}: {error.strerror}; --out DIR names another folder",
            param_hint="--out",
        ) from error


@main.command("list")
@OUT
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def list_(out: Path | None, as_json: bool) -> None:
    """List the kernels that are built, where they are looked for."""
    folders = [out] if out else store.search_path()
    found = {str(folder): store.names(folder) for folder in folders}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(name for names in found.values() for name in names))


@main.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the text of a kernel, freshly rendered."""
    click.echo(render(parse(name)), nl=False)


@main.command()
@click.argument("name_a")
@click.argument("name_b")
def diff(name_a: str, name_b: str) -> None:
    """Print what differs between two kernels beside their names."""
    click.echo(store.difference(parse(name_a), parse(name_b)), nl=False)


@main.command()
@click.argument(
    "folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def check(folder: Path | None, as_json: bool) -> None:
    """Render again and compare: exit 1 and the mending command where anything differs."""
    expected = None if folder else catalog().values()
    folder = folder or store.generated()
    differences = list(store.compare(folder, expected))
    if as_json:
        click.echo(json.dumps([vars(d) for d in differences], indent=2))
    else:
        click.echo("\n".join(store.report(differences, folder)))
    sys.exit(1 if differences else 0)


@main.command()
@spec_options
@click.option(
    "--target", type=click.Choice(list(TARGETS)), multiple=True, help="Repeats; all if not given."
)
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def compile(target: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Compile for named GPUs, without one: registers, spills and shared memory."""
    from attngen import compile as compiler

    asked = chosen(options)
    variants = asked or list(catalog().values())
    targets = [TARGETS[name] for name in target or TARGETS]
    # Nobody asked for Hopper kernels on other GPUs where nobody named a kernel and a target.
    reports = compiler.reports(variants, targets, skip=asked is None or not target)
    sys.exit(_print_all(reports, as_json))


@main.command()
@spec_options
@OUT
@click.option(
    "--interpret",
    flag_value="always",
    help="Run in Triton's interpreter on the CPU.",
)
@click.option(
    "--interpret-without-gpu",
    "interpret",
    flag_value="auto",
    help="Run on the GPU, or in the interpreter where there is none.",
)
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def verify(out: Path | None, interpret: str | None, as_json: bool, **options: Any) -> None:
    """Run built kernels against the reference; exit 1 where one is wrong."""
    from attngen.interpret import choose_device

    device = choose_device(interpret)
    from attngen import verify as verifier

    sys.exit(_print_all(verifier.reports(chosen(options), out, device), as_json))


@main.command()
@click.option("--op", type=click.Choice(list(OPS)), default="attention_fwd", show_default=True)
@click.option("--dtype", multiple=True, default=["bf16"], show_default=True)
@click.option("--backend", type=click.Choice(BACKENDS), default="triton", show_default=True)
@click.option("--rounds", type=int, default=11, show_default=True)
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Keep it.")
def bench(op: str, dtype: tuple[str, ...], backend: str, rounds: int, path: Path | None) -> None:
    """Time an operator on this GPU: every tile that is built, beside what torch brings."""
    from attngen.device import require_gpu

    require_gpu("bench")
    from attngen import bench as bencher
    from attngen import timing

    records = []
    for record in bencher.records(op, dtype, backend, rounds):
        records.append(record)
        click.echo(bencher.line(record))
    if path:
        bencher.save(path, timing.header(" ".join(["attngen", *sys.argv[1:]])), records)


main.add_command(roofline)
main.add_command(cli_tune.command(spec_options, chosen))


@main.command()
def doctor() -> None:
    """Say what this machine can do, and what is missing."""
    from attngen import doctor as diagnosis

    click.echo("\n".join(diagnosis.lines()))


def _print_all(reports: Iterator[Any], as_json: bool) -> int:
    """Print reports as they come; 1 where any of them failed, else 0."""
    failed = False
    for report in reports:
        failed |= report.failed
        click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    return int(failed)


if __name__ == "__main__":
    main()
