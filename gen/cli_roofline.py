"""The roofline command: its options; the work is in the modules that begin with roofline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--seqlen", type=int, help="Queries and keys; 8192, or with --measure 1024 to 32768.")
@click.option("--heads-q", type=int, default=32, show_default=True, help="Query heads.")
@click.option("--heads-kv", type=int, default=8, show_default=True, help="KV heads.")
@click.option("--head-dim", type=int, default=128, show_default=True, help="Columns of q, k and v.")
@click.option("--batch", type=int, default=1, show_default=True, help="Sequences.")
@click.option("--layers", type=int, default=32, show_default=True, help="Layers of the model.")
@click.option("--dtype", default="bf16", show_default=True, help="fp16, bf16 or fp32.")
@click.option("--gpu", help="A100, H100, H200, B200 or MI300X; H100, or the one measured on.")
@click.option("--decode", is_flag=True, help="One query a sequence.")
@click.option("--taken-gb", type=float, default=0.0, help="Memory that is taken, as by weights.")
@click.option("--measure", is_flag=True, help="Time three kernels and the generated one here.")
@click.option("--rounds", type=click.IntRange(1), default=11, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For a program to read.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: .svg, .png."
)
def roofline(measure: bool, rounds: int, as_json: bool, plot: Path | None, **shape: Any) -> None:
    """What traffic and arithmetic allow for a shape on a GPU, and what was measured."""
    from attngen import roofline as model
    from attngen import roofline_plot

    if plot:
        roofline_plot.check(plot)
    shape = {name: value for name, value in shape.items() if value is not None}
    records: list[dict[str, Any]] = []
    if measure:
        question, records = _measured(shape, rounds, as_json)
    else:
        question = model.ask(**shape)
        told = json.dumps(model.facts(question), indent=1)
        click.echo(told if as_json else "\n".join(model.lines(question)))
    if plot:
        roofline_plot.save(plot, question, records)


def _measured(shape: dict[str, Any], rounds: int, as_json: bool) -> Any:
    """The question that was measured, and its records, which are printed."""
    from attngen import roofline_measure as measurement

    question = measurement.question(shape)
    lengths = [shape["seqlen"]] if "seqlen" in shape else measurement.LENGTHS
    records = []
    click.echo(measurement.TITLE, err=as_json)
    for record in measurement.records(question, lengths, rounds):
        records.append(record)
        click.echo(measurement.line(record), err=as_json)
    if as_json:
        from attngen import bench

        head = bench.header(" ".join(["attngen", *sys.argv[1:]]))
        click.echo(bench.as_text(head, records), nl=False)
    return question, records
