"""The command line: options to a call, results to lines; each command's work has its own module."""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from attngen import cli_tune, store
from attngen.catalog import catalog
from attngen.cli_roofline import roofline
from attngen.config import BACKENDS, TARGETS, TileConfig
from attngen.errors import CannotCompile, GpuLost, InvalidSpec, NoGPU, NotGenerated
from attngen.ops import OPS, default_config, why_no_tile
from attngen.render import render
from attngen.spec import DTYPES, Spec, option
from attngen.variant import Variant, parse

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


def _spec_options(command: Command) -> Command:
    """Names, and the options that choose specs and tiles."""
    features = {f.name: f for op in OPS.values() for f in op.spec.features if f.name != "causal"}
    options = [
        click.argument("names", nargs=-1, metavar="[NAME]..."),
        click.option(
            "--op", type=click.Choice(list(OPS)), default="attention_fwd", show_default=True
        ),
        click.option("--head-dim", type=int, multiple=True, help="Columns of q and k; repeats."),
        click.option("--head-dim-v", type=int, help="Columns of v; --head-dim where not given."),
        click.option(
            "--dtype", multiple=True, metavar="DTYPE", help=f"One of {', '.join(DTYPES)}; repeats."
        ),
        click.option("--causal/--no-causal", default=None, help="Neither of them: both."),
        *(click.option(option(f.name), is_flag=True, help=f"{f.help}.") for f in features.values()),
        click.option("--block-m", type=int, help="Query rows a program."),
        click.option("--block-n", type=int, help="Keys a step."),
        click.option("--num-warps", type=int),
        click.option("--num-stages", type=int),
    ]
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def _chosen(options: dict[str, Any], target: str | None = None) -> list[Variant] | None:
    """The variants that names and options ask for; None where they ask for none.

    For the target sm_90 tiles are those of the Hopper family where that can do the spec.
    """
    names = options.pop("names")
    tile = {
        name: value
        for name in ("block_m", "block_n", "num_warps", "num_stages")
        if (value := options.pop(name)) is not None
    }
    head_dims, dtypes = options.pop("head_dim"), options.pop("dtype")
    if not head_dims and not dtypes:
        if target:
            raise click.UsageError("--target goes with --head-dim and --dtype: it chooses a tile")
        return [parse(name) for name in names] or None
    if not head_dims or not dtypes:
        missing = "--head-dim" if dtypes else "--dtype"
        raise click.UsageError(f"{missing} is missing: a spec needs --head-dim and --dtype")
    specs = _specs(head_dims, dtypes, options)
    variants = [Variant(spec, _config(spec, tile, target)) for spec in specs]
    return [parse(name) for name in names] + variants


def _specs(head_dims: Any, dtypes: Any, options: dict[str, Any]) -> Iterator[Spec]:
    """The specs of an operator that the options ask for; causal and not, if they say neither."""
    spec_class = OPS[options.pop("op")].spec
    known = {field.name for field in fields(spec_class)}
    given = {name: value for name, value in options.items() if value not in (None, False)}
    for name in [*given, *(["causal"] if options["causal"] is False else [])]:
        if name not in known:
            raise click.UsageError(f"{option(name)} is no option of --op {spec_class.op}")
    both = (False, True) if "causal" in known and options["causal"] is None else (None,)
    for head_dim, dtype, causal in itertools.product(head_dims, dtypes, both):
        extra = {} if causal is None else {"causal": causal}
        yield spec_class(dtype=dtype, **{"head_dim": head_dim, **given, **extra})


def _config(spec: Spec, tile: dict[str, int], target: str | None) -> TileConfig:
    backend = "sm90" if target == "sm_90" else "triton"
    if reason := why_no_tile(spec, backend):
        click.echo(f"portable kernel for {spec.name}: {reason}", err=True)
        backend = "triton"
    elif backend == "sm90":
        click.echo(f"Hopper kernel (sm90) for {spec.name}", err=True)
    default = default_config(spec, backend)
    return TileConfig(**{**vars(default), **tile})


def _folder(out: Path | None) -> Path:
    if out is not None:
        return out
    if not store.in_checkout():
        raise click.UsageError("--out is missing: outside a checkout it says where kernels go")
    return store.generated()


_OUT = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of kernels."
)


@main.command()
@_spec_options
@_OUT
@click.option(
    "--target",
    type=click.Choice(list(TARGETS)),
    help="Also what was tuned for it; sm_90: the Hopper kernel where there is one.",
)
@cli_tune.device_option
def build(out: Path | None, target: str | None, device: str | None, **options: Any) -> None:
    """Render kernels into a folder: those named, those the options ask for, or the catalog."""
    folder = _folder(out)
    variants = _chosen(options, target) or list(catalog().values())
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
@_OUT
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
@_spec_options
@click.option(
    "--target", type=click.Choice(list(TARGETS)), multiple=True, help="Repeats; all if not given."
)
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
def compile(target: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Compile for named GPUs, without one: registers, spills and shared memory."""
    from attngen import compile as compiler

    chosen = _chosen(options)
    variants = chosen or list(catalog().values())
    targets = [TARGETS[name] for name in target or TARGETS]
    # Nobody asked for Hopper kernels on other GPUs where nobody named a kernel and a target.
    reports = compiler.reports(variants, targets, skip=chosen is None or not target)
    sys.exit(_print_all(reports, as_json))


@main.command()
@_spec_options
@_OUT
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

    sys.exit(_print_all(verifier.reports(_chosen(options), out, device), as_json))


@main.command()
@click.option("--dtype", multiple=True, default=["bf16"], show_default=True)
@click.option("--backend", type=click.Choice(BACKENDS), default="triton", show_default=True)
@click.option("--rounds", type=int, default=11, show_default=True)
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Keep it.")
def bench(dtype: tuple[str, ...], backend: str, rounds: int, path: Path | None) -> None:
    """Time prefill on this GPU: every tile that is built, beside the peers that torch brings."""
    from attngen.interpret import choose_device

    choose_device(None)
    from attngen import bench as bencher

    records = []
    for record in bencher.prefill(dtype, backend, rounds):
        records.append(record)
        click.echo(bencher.line(record))
    if path:
        bencher.save(path, bencher.header(" ".join(["attngen", *sys.argv[1:]])), records)


main.add_command(roofline)
main.add_command(cli_tune.command(_spec_options, _chosen))


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
