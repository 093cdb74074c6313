"""Device time of calls on the GPU at hand, in interleaved rounds, and what that GPU reaches."""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch

Call = Callable[[], Any]
Graph = tuple[torch.cuda.CUDAGraph, int]
TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}

GRAPH_MS = 2.5
"""A CUDA graph repeats a call for about this long, so that host time does not enter."""
REST_S = 0.012
"""Pause before each measurement, in which the chip cools and its clock recovers."""


def timed_speeds(calls: dict[str, Call], work: float, rounds: int) -> dict[str, list[float]]:
    """10^12 units of work a second, of every call in every round.

    A call that cannot be captured is left out, in words.

    Args:
        calls: what to time, by name; in each round one after the other.
        work: FLOPs or bytes of one call, the same for all.
        rounds: how often.
    """
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = captured(call)
        except Exception as error:
            print(f"left out: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {
        name: [work * 1e-9 / value for value in values]
        for name, values in interleaved(graphs, rounds).items()
    }


def interleaved(
    graphs: dict[str, Graph], rounds: int, rest: float = REST_S
) -> dict[str, list[float]]:
    """Milliseconds of a call of every graph in every round, in which each takes its turn."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, (graph, repeats) in graphs.items():
            time.sleep(rest)
            found[name].append(milliseconds(graph.replay) / repeats)
    return found


def captured(call: Call) -> Graph:
    """A graph that repeats the call for about GRAPH_MS, and how often it does."""
    for _ in range(3):
        call()
    repeats = max(1, round(GRAPH_MS / milliseconds(call)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph, repeats


def milliseconds(call: Call) -> float:
    """Device time of one call."""
    event: Callable[..., torch.cuda.Event] = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def ceilings() -> dict[str, float]:
    """What this GPU reaches: a large bf16 product in TFLOP/s and a copy in TB/s."""
    n = 8192
    a, b = (torch.randn((n, n), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    product = statistics.median(milliseconds(lambda: torch.mm(a, b)) for _ in range(12))
    copy = statistics.median(milliseconds(lambda: target.copy_(source)) for _ in range(12))
    return {
        "product_bf16_tflops": round(2 * n**3 / product * 1e-9, 1),
        "copy_tbps": round(2 * source.nbytes / copy * 1e-9, 3),
    }


def header(command: str) -> dict[str, Any]:
    """What the numbers were measured with."""
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "driver": _driver(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "ceilings": ceilings(),
    }


def _driver() -> str:
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
