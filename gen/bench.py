"""Time generated kernels beside their peers: one process, one set of inputs, interleaved rounds."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attngen import finder, store
from attngen.spec_attention import AttentionFwd
from attngen.variant import parse

Call = Callable[[], Any]
Graph = tuple[torch.cuda.CUDAGraph, int]
TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}

GRAPH_MS = 2.5
"""A CUDA graph repeats a call for about this long, so that host time does not enter."""
REST_S = 0.012
"""Pause before each measurement, in which the chip cools and its clock recovers."""


@dataclass(frozen=True)
class Shape:
    """One prefill: equal lengths of queries and keys."""

    batch: int
    seqlen: int
    heads_q: int
    heads_kv: int
    head_dim: int

    def flops(self, causal: bool) -> float:
        """Operations of the two products, half of them where causal."""
        full = 4.0 * self.batch * self.heads_q * self.seqlen**2 * self.head_dim
        return full / 2 if causal else full


SHAPES = (
    Shape(1, 8192, 32, 8, 128),
    Shape(8, 2048, 16, 16, 128),
    Shape(32, 512, 16, 16, 128),
    Shape(1, 16384, 16, 16, 128),
    Shape(2, 8192, 32, 32, 64),
    Shape(16, 1024, 32, 32, 64),
    Shape(1, 8192, 16, 16, 256),
)


def prefill(dtypes: Iterable[str], backend: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Records of the results format for every shape, causal and not: TFLOP/s.

    Each kernel of the backend that is built for a spec, and each peer that takes the call, is
    captured in a graph and timed once a round, in turn; the value is the median of the fastest
    kernel, and `ratio` the median over the rounds of its speed over that of the fastest peer.
    A spec for which nothing is built is left out.
    """
    for shape in SHAPES:
        for dtype in dtypes:
            for causal in (False, True):
                spec = AttentionFwd(head_dim=shape.head_dim, dtype=dtype, causal=causal)
                if names := _built(spec, backend):
                    yield _record(shape, spec, names, rounds)
                gc.collect()
                torch.cuda.empty_cache()


def _record(shape: Shape, spec: AttentionFwd, names: list[str], rounds: int) -> dict[str, Any]:
    dtype, causal = spec.dtype, spec.causal
    q, k, v = (
        torch.randn(
            (shape.batch, shape.seqlen, heads, shape.head_dim),
            device="cuda",
            dtype=TORCH_DTYPES[dtype],
        )
        for heads in (shape.heads_q, shape.heads_kv, shape.heads_kv)
    )
    kernels = {name: _kernel(name, q, k, v) for name in names}
    peers = dict(_peers(q, k, v, causal))
    speeds = timed_speeds({**kernels, **peers}, shape.flops(causal), rounds)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    best = max((name for name in kernels if name in medians), key=medians.__getitem__)
    best_peer = max((name for name in peers if name in medians), key=medians.__getitem__)
    ratios = [a / b for a, b in zip(speeds[best], speeds[best_peer], strict=True)]
    return {
        "op": spec.op,
        "variant": best,
        "dtype": dtype,
        "shape": vars(shape),
        "causal": causal,
        "metric": "tflops",
        "value": round(medians[best], 1),
        "peers": {name: round(medians[name], 1) for name in peers if name in medians},
        "best_peer": best_peer,
        "ratio": round(statistics.median(ratios), 3),
        "tiles": {name: round(medians[name], 1) for name in kernels if name in medians},
    }


def _built(spec: AttentionFwd, backend: str) -> list[str]:
    names = {name for folder in store.search_path() for name in store.names(folder)}
    variants = {name: parse(name) for name in names}
    return sorted(
        name for name, v in variants.items() if v.spec == spec and v.config.backend == backend
    )


def _kernel(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    module = finder.load(name)
    return lambda: module.attention_fwd(q, k, v)


def _peers(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Iterator[tuple[str, Call]]:
    """What torch brings, on [batch, heads, seqlen, d]: FlashAttention-2, cuDNN, FlexAttention."""
    views = (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    grouped = q.shape[2] != k.shape[2]

    def sdpa(backend: SDPBackend) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(*views, is_causal=causal, enable_gqa=grouped)

        return call

    yield "fa2", sdpa(SDPBackend.FLASH_ATTENTION)
    yield "cudnn", sdpa(SDPBackend.CUDNN_ATTENTION)
    yield "flex", _flex(views, causal, grouped)


def _flex(
    views: tuple[torch.Tensor, torch.Tensor, torch.Tensor], causal: bool, grouped: bool
) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def triangle(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    seqlen = views[0].shape[2]
    mask = create_block_mask(triangle, None, None, seqlen, seqlen, "cuda") if causal else None
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(*views, block_mask=mask, enable_gqa=grouped)


def timed_speeds(calls: dict[str, Call], flops: float, rounds: int) -> dict[str, list[float]]:
    """TFLOP/s of every call in every round; a call that cannot be captured is left out."""
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = captured(call)
        except Exception as error:
            print(f"left out: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {
        name: [flops * 1e-9 / value for value in values]
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
            found[name].append(_milliseconds(graph.replay) / repeats)
    return found


def captured(call: Call) -> Graph:
    """A graph that repeats the call for about GRAPH_MS, and how often it does."""
    for _ in range(3):
        call()
    repeats = max(1, round(GRAPH_MS / _milliseconds(call)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph, repeats


def _milliseconds(call: Call) -> float:
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
    product = statistics.median(_milliseconds(lambda: torch.mm(a, b)) for _ in range(12))
    copy = statistics.median(_milliseconds(lambda: target.copy_(source)) for _ in range(12))
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


def line(record: dict[str, Any]) -> str:
    """One record as a line of a table."""
    shape = ", ".join(str(x) for x in record["shape"].values())
    peers = "  ".join(f"{name} {value:.0f}" for name, value in record["peers"].items())
    return (
        f"({shape}) {'causal' if record['causal'] else 'full  '} {record['dtype']}"
        f"  {record['value']:.0f}  {peers}  {record['ratio']:.2f} of {record['best_peer']}"
        f"  {record['variant']}"
    )


def as_text(head: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """Header and records as the results files have them, one record a line."""
    rows = ",\n  ".join(json.dumps(record) for record in records)
    top = json.dumps(head, indent=1)[:-2]
    return f'{top},\n "records": [\n  {rows}\n ]\n}}\n'


def save(path: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write header and records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(head, records), encoding="utf-8")
