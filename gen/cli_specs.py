"""The options that choose kernels, for every command that takes some."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from attngen import store
from attngen.config import TileConfig
from attngen.ops import OPS, default_config, why_no_tile
from attngen.spec import DTYPES, Spec, option
from attngen.variant import Variant, parse

Command = Callable[..., Any]


def spec_options(command: Command) -> Command:
    """Names, and the options that choose specs and tiles."""
    features = {f.name: f for op in OPS.values() for f in op.spec.features if f.name != "causal"}
    sizes = dict.fromkeys(size for op in OPS.values() for size in op.spec.sizes)
    options = [
        click.argument("names", nargs=-1, metavar="[NAME]..."),
        click.option(
            "--op", type=click.Choice(list(OPS)), default="attention_fwd", show_default=True
        ),
        *(
            click.option(
                option(size), type=int, multiple=True, help="Of an --op with one; repeats."
            )
            for size in sizes
        ),
        click.option(
            "--dtype", multiple=True, metavar="DTYPE", help=f"One of {', '.join(DTYPES)}; repeats."
        ),
        click.option("--causal/--no-causal", default=None, help="Neither of them: both."),
        *(click.option(option(f.name), is_flag=True, help=f"{f.help}.") for f in features.values()),
        click.option("--block-m", type=int, help="Rows a program."),
        click.option("--block-n", type=int, help="Keys or columns a step."),
        click.option("--num-warps", type=int),
        click.option("--num-stages", type=int),
    ]
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def chosen(options: dict[str, Any], target: str | None = None) -> list[Variant] | None:
    """The variants that names and options ask for; None where they ask for none.

    For the target sm_90 tiles are those of the Hopper family where that can do the spec.
    """
    names = options.pop("names")
    tile = {
        name: value
        for name in ("block_m", "block_n", "num_warps", "num_stages")
        if (value := options.pop(name)) is not None
    }
    spec_class = OPS[options.pop("op")].spec
    needed = (*spec_class.needed_sizes(), "dtype")
    words = " and ".join(option(name) for name in needed)
    missing = [option(name) for name in needed if not options[name]]
    if len(missing) == len(needed):
        if target:
            raise click.UsageError(f"--target goes with {words}: it chooses a tile")
        return [parse(name) for name in names] or None
    if missing:
        raise click.UsageError(f"{' and '.join(missing)} is missing: a spec needs {words}")
    specs = _specs(spec_class, options)
    variants = [Variant(spec, _config(spec, tile, target)) for spec in specs]
    return [parse(name) for name in names] + variants


def _specs(spec_class: type[Spec], options: dict[str, Any]) -> Iterator[Spec]:
    """The specs of an operator that the options ask for; causal and not, if they say neither."""
    known = {field.name for field in fields(spec_class)}
    given = {name: value for name, value in options.items() if value not in (None, False, ())}
    words = {option(name): name for name in given}
    if options["causal"] is False:
        words["--no-causal"] = "causal"
    for word, name in words.items():
        if name not in known:
            raise click.UsageError(f"{word} is no option of --op {spec_class.op}")
    if "causal" in known:
        given["causal"] = (False, True) if options["causal"] is None else (options["causal"],)
    choices = {name: value for name, value in given.items() if isinstance(value, tuple)}
    for choice in itertools.product(*choices.values()):
        yield spec_class(**{**given, **dict(zip(choices, choice, strict=True))})


def _config(spec: Spec, tile: dict[str, int], target: str | None) -> TileConfig:
    backend = "sm90" if target == "sm_90" else "triton"
    if reason := why_no_tile(spec, backend):
        click.echo(f"portable kernel for {spec.name}: {reason}", err=True)
        backend = "triton"
    elif backend == "sm90":
        click.echo(f"Hopper kernel (sm90) for {spec.name}", err=True)
    default = default_config(spec, backend)
    return TileConfig(**{**vars(default), **tile})


def folder_of(out: Path | None) -> Path:
    """The folder that --out names, or the one of a checkout."""
    if out is not None:
        return out
    if not store.in_checkout():
        raise click.UsageError("--out is missing: outside a checkout it says where kernels go")
    return store.generated()


OUT = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of kernels."
)
