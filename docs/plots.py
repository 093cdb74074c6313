"""Draw the committed results: python docs/plots.py.

What a plot shows is a table of numbers that a function here takes from docs/performance; its digest
stands in the plot, so that a test sees a plot that is older than the results without drawing it.
The same matplotlib draws the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attngen import roofline, roofline_plot
from attngen.reference import cost

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/performance/nvidia-h200"
PLOTS = ROOT / "docs/performance/plots"

# Okabe and Ito's colours, which the colour-blind tell apart too.
STYLES = {
    "attngen, Hopper": ("#0072B2", "o"),
    "attngen, Hopper, back to back": ("#56B4E9", "D"),
    "attngen, portable": ("#009E73", "s"),
    "cuDNN": ("#D55E00", "^"),
    "FlexAttention": ("#E69F00", "v"),
    "FA2": ("#999999", "P"),
}
PEERS = {"cudnn": "cuDNN", "flex": "FlexAttention", "fa2": "FA2"}
MASKS = {False: "full attention", True: "causal attention"}
Data = dict[str, Any]


def by_length() -> Data:
    """TFLOP/s over the sequence length, 16,384 tokens in all, 16 heads, head dim 128."""
    found: Data = {mask: {} for mask in MASKS.values()}
    for record, names in _speeds():
        shape = record["shape"]
        heads = shape["heads_q"], shape["heads_kv"], shape["head_dim"]
        if shape["batch"] * shape["seqlen"] == 16384 and heads == (16, 16, 128):
            for name, value in names.items():
                line = found[MASKS[record["causal"]]].setdefault(name, [])
                line.append([shape["seqlen"], value])
    for mask in found.values():
        for line in mask.values():
            line.sort()
    return found


def _speeds() -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Records with the names and values to show; cuDNN's are those of the Hopper family's run."""
    found = []
    for record in _records("prefill-sm90.json"):
        if record["clock"] == "rested":
            values = {"attngen, Hopper": record["value"], "cuDNN": record["peers"]["cudnn"]}
            found.append((record, values))
    for record in _records("prefill.json"):
        peers = {PEERS[name]: record["peers"][name] for name in ("flex", "fa2")}
        found.append((record, {"attngen, portable": record["value"], **peers}))
    return found


def by_cell() -> Data:
    """TFLOP/s of the portable family and its peers in one run, for every shape."""
    found: Data = {mask: {} for mask in MASKS.values()}
    for record in _records("prefill.json"):
        peers = {PEERS[name]: record["peers"][name] for name in ("fa2", "flex", "cudnn")}
        cell = _name(record["shape"])
        found[MASKS[record["causal"]]][cell] = {**peers, "attngen, portable": record["value"]}
    return found


def over_best_peer() -> Data:
    """Speed over that of the best peer, cuDNN everywhere, for every shape."""
    shapes = [_name(r["shape"]) for r in _records("prefill-sm90.json") if not r["causal"]]
    found: Data = {mask: {shape: {} for shape in shapes} for mask in MASKS.values()}
    clocks = {"rested": "attngen, Hopper", "sustained": "attngen, Hopper, back to back"}
    for record in _records("prefill-sm90.json"):
        _check_peer(record)
        cell = found[MASKS[record["causal"]]][_name(record["shape"])]
        cell[clocks[record["clock"]]] = record["ratio"]
    for record in _records("prefill.json"):
        _check_peer(record)
        cell = found[MASKS[record["causal"]]][_name(record["shape"])]
        cell["attngen, portable"] = record["ratio"]
    return found


def roofline_h200() -> Data:
    """Three kernels and one on an H200's roofline, head dim 128, not causal.

    As `attngen roofline --measure` found them where its results are committed. Without them three
    kernels stand where the model has them, for a layer of Llama-3-8B at lengths from 1024 to 32768,
    and the fused kernel is the Hopper family's prefill.
    """
    asked = roofline.ask(gpu="H200")
    is_measured = (RESULTS / "roofline.json").exists()
    if is_measured:
        three, one = (s.points for s in roofline_plot.measured(asked, _records("roofline.json")))
    else:
        layers = [asked.of_length(1024 * 2**i) for i in range(6)]
        three = [point for each in layers for point in roofline_plot.floors(each)[0].points]
        one = list(_fused_prefill())
    return {
        "three": [list(point) for point in three],
        "three_measured": is_measured,
        "one": sorted(list(point) for point in one),
    }


def _fused_prefill() -> Iterator[tuple[float, float]]:
    for record in _records("prefill-sm90.json"):
        shape = dict(record["shape"])
        if record["clock"] == "rested" and not record["causal"] and shape["head_dim"] == 128:
            seqlen = shape.pop("seqlen")
            layer = cost.Attention(seqlen_q=seqlen, seqlen_kv=seqlen, **shape)
            yield layer.fused_intensity, record["value"]


def _records(name: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((RESULTS / name).read_text())["records"]
    return records


def _name(shape: dict[str, int]) -> str:
    return ", ".join(str(size) for size in shape.values())


def _check_peer(record: dict[str, Any]) -> None:
    if record["best_peer"] != "cudnn":
        raise ValueError(f"the plot's axis says cuDNN, the best peer is {record['best_peer']}")


def draw_by_length(figure: Any, data: Data) -> None:
    """Lines, a panel for each mask."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (mask, lines) in zip(panels, data.items(), strict=True):
        for name in [name for name in STYLES if name in lines]:
            colour, marker = STYLES[name]
            axes.plot(*zip(*lines[name], strict=True), marker=marker, color=colour, label=name)
        axes.set_xscale("log", base=2)
        lengths = sorted({x for line in lines.values() for x, _ in line})
        axes.set_xticks(lengths, [str(x) for x in lengths])
        axes.minorticks_off()
        axes.set_xlabel("sequence length (16,384 tokens in all)")
        axes.set_title(mask)
        axes.grid(color="#dddddd", linewidth=0.6)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("TFLOP/s")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def draw_by_cell(figure: Any, data: Data) -> None:
    """Upright bars in groups, a panel for each mask."""
    panels = figure.subplots(2, 1, sharex=True)
    for axes, (mask, cells) in zip(panels, data.items(), strict=True):
        _bars(axes.bar, cells, 0.8)
        axes.set_ylabel(f"TFLOP/s, {mask.split()[0]}")
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    labels = [
        ", ".join(name.split(", ")[:2]) + ",\n" + ", ".join(name.split(", ")[2:]) for name in cells
    ]
    panels[1].set_xticks(range(len(cells)), labels)
    panels[1].set_xlabel("batch, sequence length, heads, KV heads, head dim")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def draw_over_best_peer(figure: Any, data: Data) -> None:
    """Lying bars in groups, a panel for each mask, and a line where both are as fast."""
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (mask, cells) in zip(panels, data.items(), strict=True):
        _bars(axes.barh, cells, 0.8)
        axes.set_yticks(range(len(cells)), list(cells))
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel("speed / speed of cuDNN, the best peer")
        axes.set_title(mask)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[0].set_ylim(len(cells) - 0.4, -0.6)
    panels[0].set_ylabel("batch, sequence length, heads, KV heads, head dim")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)


def _bars(bar: Callable[..., Any], cells: Data, width: float) -> None:
    names = [name for name in STYLES if any(name in values for values in cells.values())]
    thick = width / len(names)
    for i, name in enumerate(names):
        here = [(at, v[name]) for at, v in enumerate(cells.values()) if name in v]
        places = [at - width / 2 + (i + 0.5) * thick for at, _ in here]
        bar(places, [value for _, value in here], thick, color=STYLES[name][0], label=name)


def draw_roofline(figure: Any, data: Data) -> None:
    """The roof, and points at and below it."""
    axes = figure.subplots()
    three = roofline_plot.Series(False, data["three_measured"], data["three"])
    one = roofline_plot.Series(True, True, data["one"])
    roofline_plot.draw(axes, cost.H200_SXM, [three, one])


PLOT = {
    "prefill-by-length": (by_length, draw_by_length, (8.0, 3.8), "16 heads, head dim 128"),
    "prefill-by-shape": (by_cell, draw_by_cell, (8.0, 5.0), "the portable family"),
    "prefill-speed-up": (over_best_peer, draw_over_best_peer, (8.0, 6.0), "over cuDNN"),
    "roofline": (roofline_h200, draw_roofline, (6.4, 4.0), "full attention, head dim 128"),
}


def digest(data: Data) -> str:
    """What stands in a plot for the numbers that it shows."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def save(name: str, path: Path) -> None:
    """Draw one plot; the ending of the path chooses the format."""
    import matplotlib
    from matplotlib.figure import Figure

    table, draw, size, title = PLOT[name]
    style = {"font.size": 9, "svg.hashsalt": "attngen", "svg.fonttype": "path"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, table())
        figure.suptitle(f"NVIDIA H200, bf16, {title}")
        facts = {"Date": None, "Description": f"sha256 of the data: {digest(table())}"}
        figure.savefig(path, dpi=150, metadata=facts if path.suffix == ".svg" else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the committed results.")
    parser.add_argument("--out", type=Path, default=PLOTS, help="Folder of the SVG files.")
    parser.add_argument("--format", default="svg", help="svg, png or pdf.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for each in PLOT:
        save(each, options.out / f"{each}.{options.format}")
