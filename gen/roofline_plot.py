"""The roofline of a GPU, log-log, with a shape's ways to compute attention on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attngen.errors import InvalidSpec
from attngen.reference.cost import Gpu
from attngen.roofline import Question, facts

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"
"""Told apart by the colour-blind too (Okabe and Ito)."""


@dataclass(frozen=True)
class Series:
    """Points of one way to compute attention.

    Attributes:
        fused: One kernel, or three?
        measured: Measured, or the floors that the model gives?
        points: (FLOP/byte, TFLOP/s).
    """

    fused: bool
    measured: bool
    points: list[tuple[float, float]]

    @property
    def label(self) -> str:
        """What the legend says."""
        how = "measured" if self.measured else "floor"
        return f"{'one fused kernel' if self.fused else 'three kernels'}, {how}"


def floors(question: Question) -> list[Series]:
    """Where the model puts both ways."""
    told = facts(question)
    ways = (told["three_kernels"], told["fused"])
    flops = told["flop"]
    return [
        Series(fused, False, [(way["flop_per_byte"], 1e-9 * flops / way["layer_ms"])])
        for fused, way in zip((False, True), ways, strict=True)
    ]


def measured(question: Question, records: list[dict[str, Any]]) -> list[Series]:
    """Where measurements (`roofline_measure.record`) put both ways."""
    three, one = [], []
    for record in records:
        flops = question.of_length(record["shape"]["seqlen"]).layer.flops
        one.append((flops / record["bytes"], 1e-6 * flops / record["value"]))
        if naive := record["peers"].get("naive"):
            three.append((flops / record["naive_bytes"], 1e-6 * flops / naive))
    return [Series(False, True, three), Series(True, True, one)]


def draw(axes: Any, gpu: Gpu, found: list[Series]) -> None:
    """The roof of a GPU and points below it."""
    peak, bandwidth = gpu.peak_flops / 1e12, gpu.bandwidth / 1e12
    intensities = [x for series in found for x, _ in series.points]
    left = min(4.0, *intensities) / 2
    right = max(4 * gpu.ridge, *intensities) * 4
    axes.loglog([left, gpu.ridge, right], [left * bandwidth, peak, peak], color=GREY, linewidth=1.8)
    axes.axvline(gpu.ridge, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate(
        f"ridge, {gpu.ridge:.0f} FLOP/byte",
        (gpu.ridge, peak / 8),
        xytext=(5, 0),
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
        xytext=(10, -4),
        textcoords="offset points",
        color=GREY,
    )
    for series in found:
        if series.points:
            colour = BLUE if series.fused else ORANGE
            axes.plot(
                *zip(*series.points, strict=True),
                "o" if series.fused else "s",
                color=colour,
                markerfacecolor=colour if series.measured else "white",
                markersize=6,
                label=series.label,
            )
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
    draw(axes, question.gpu, measured(question, records) if records else floors(question))
    layer = question.layer
    length = "" if records else f", length {layer.seqlen_kv}"
    title = f"{question.gpu.name}, {question.dtype}, head dim {layer.head_dim}{length}"
    axes.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
