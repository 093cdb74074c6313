"""The roofline of a GPU, log-log, with a shape's ways to compute attention on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attngen.errors import InvalidSpec
from attngen.reference.cost import Gpu
from attngen.roofline import Question, facts

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#555555"
"""Told apart by the colour-blind too (Okabe and Ito)."""
Points = dict[str, list[tuple[float, float]]]
_MARKS = {"three kernels": ("s", ORANGE), "generated kernel": ("o", BLUE)}


def points(question: Question, records: list[dict[str, Any]]) -> Points:
    """FLOP/byte and TFLOP/s of both ways: the model's, or what was measured where that is given."""
    found: Points = {"three kernels": [], "generated kernel": []}
    if not records:
        told = facts(question)
        for name, way in zip(found, (told["three_kernels"], told["fused"]), strict=True):
            speed = 1e-9 * told["flop"] / way["layer_ms"]
            found[name].append((way["flop_per_byte"], speed))
    for record in records:
        flops = question.of_length(record["shape"]["seqlen"]).layer.flops
        found["generated kernel"].append((flops / record["bytes"], 1e-6 * flops / record["value"]))
        if naive := record["peers"].get("naive"):
            speed = 1e-6 * flops / naive
            found["three kernels"].append((flops / record["naive_bytes"], speed))
    return found


def draw(axes: Any, gpu: Gpu, found: Points) -> None:
    """The roof of a GPU and points below it."""
    peak, bandwidth = gpu.peak_flops / 1e12, gpu.bandwidth / 1e12
    intensities = [x for group in found.values() for x, _ in group]
    left = min(4.0, *intensities) / 2
    right = max(4 * gpu.ridge, *intensities) * 2
    axes.loglog([left, gpu.ridge, right], [left * bandwidth, peak, peak], color=GREY, linewidth=1.8)
    axes.axvline(gpu.ridge, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"ridge, {gpu.ridge:.0f} FLOP/byte",
        (gpu.ridge, left * bandwidth),
        xytext=(4, 6),
        textcoords="offset points",
        color=GREY,
    )
    axes.annotate(
        f"{peak:g} TFLOP/s",
        (right, peak),
        xytext=(-4, 5),
        textcoords="offset points",
        horizontalalignment="right",
        color=GREY,
    )
    axes.annotate(
        f"{bandwidth:g} TB/s",
        (2 * left, 2 * left * bandwidth),
        xytext=(-4, 8),
        textcoords="offset points",
        color=GREY,
    )
    for name, group in found.items():
        if group:
            marker, colour = _MARKS[name]
            axes.plot(*zip(*group, strict=True), marker, color=colour, label=name, markersize=7)
    axes.set_xlim(left, right)
    axes.set_ylim(top=2 * peak)
    axes.set_xlabel("intensity, FLOP / byte of HBM traffic")
    axes.set_ylabel("TFLOP/s")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.legend(loc="lower right", frameon=True)


def check(path: Path) -> None:
    """See that a plot can be drawn and written, before anything is measured for it.

    Raises:
        ModuleNotFoundError: where matplotlib is not installed.
        InvalidSpec: where the folder is not there, or the ending names no format.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    endings = FigureCanvasBase.filetypes
    if path.suffix[1:].lower() not in endings:
        raise InvalidSpec(f"--plot: got {path}, allowed are the endings .{', .'.join(endings)}")
    if not os.access(path.parent, os.W_OK):
        raise InvalidSpec(f"--plot: got {path}, allowed is a file in a folder that can be written")


def save(path: Path, question: Question, records: list[dict[str, Any]]) -> None:
    """Draw a question's roofline into a file, whose ending chooses the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, question.gpu, points(question, records))
    layer = question.layer
    how = "measured" if records else f"at their floors, length {layer.seqlen_kv}"
    axes.set_title(f"Attention on {question.gpu.name}, head dim {layer.head_dim}, {how}")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
