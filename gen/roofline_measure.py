"""Attention in three kernels and in one, timed on the GPU at hand beside their floors."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from attngen import bench, finder, interpret, roofline
from attngen.errors import InvalidSpec, NoGPU
from attngen.reference import cost
from attngen.roofline import Question
from attngen.spec_attention import AttentionFwd

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ROTATED_BYTES = 2**28
"""Inputs rotate through about this much memory, more than any cache holds."""
TITLE = (
    "  length   three kernels: moved, ms, floor ms      one kernel: moved, ms, floor ms"
    "     faster   bytes gone"
)


def question(shape: dict[str, Any]) -> Question:
    """The question of the command line's options, for the GPU at hand.

    Raises:
        NoGPU: where there is none.
        InvalidSpec: for a shape that no kernel takes, and for a GPU whose rates are not known.
    """
    if not torch.cuda.is_available() or interpret.interpreting():
        raise NoGPU(
            "--measure times kernels on a GPU, and there is none that torch can use"
            " (or TRITON_INTERPRET is set); without --measure the command needs none"
        )
    if shape.get("decode"):
        raise InvalidSpec("--decode: got it with --measure, allowed without: prefill is measured")
    return roofline.ask(**{"gpu": gpu_named(torch.cuda.get_device_name()), **shape})


def gpu_named(device: str) -> str:
    """The key in `cost.GPUS` of the GPU that its driver calls `device`."""
    for name, gpu in cost.GPUS.items():
        if gpu.device == device:
            return name
    raise InvalidSpec(
        f"--gpu: not given, and the peak rates of {device} are not known;"
        f" allowed are {', '.join(cost.GPUS)}"
    )


def records(
    asked: Question, lengths: Iterable[int], rounds: int, device: str = "cuda"
) -> Iterator[dict[str, Any]]:
    """One record of the results format for every length: microseconds."""
    for length in lengths:
        yield _measure(asked.of_length(length), rounds, device)
        gc.collect()
        torch.cuda.empty_cache()


def _measure(asked: Question, rounds: int, device: str) -> dict[str, Any]:
    layer = asked.layer
    spec = AttentionFwd(head_dim=layer.head_dim, dtype=asked.dtype)
    kernel = finder.find(spec, hopper=device == "cuda" and finder.is_hopper(torch.device(device)))
    count = max(2, min(16, math.ceil(ROTATED_BYTES / layer.fused_bytes)))
    sets = [_inputs(asked, device) for _ in range(count)]

    def fused() -> None:
        for q, k, v in sets:
            kernel.attention_fwd(q, k, v)

    calls: dict[str, bench.Call] = {"kernel": fused}
    # Beside S and P stand the three kernels' own copies of q, k and v, and o.
    left_out = "S and P do not fit in memory"
    if torch.cuda.mem_get_info()[0] > 2 * layer.s_bytes + count * layer.fused_bytes + 2**30:
        calls["naive"] = _three_kernels(asked, sets)
        left_out = "it could not be captured in a graph"
    speeds = bench.timed_speeds(calls, layer.flops * count, rounds)
    if "kernel" not in speeds:
        raise RuntimeError(f"{kernel.__name__} could not be timed at length {layer.seqlen_kv}")
    times = {
        name: [1e-6 * layer.flops / speed for speed in values] for name, values in speeds.items()
    }
    return record(asked, kernel.__name__.split(".")[-1], times, left_out)


def _inputs(asked: Question, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    layer = asked.layer
    q, k, v = (
        torch.randn(
            (layer.batch, layer.seqlen_kv, heads, layer.head_dim),
            device=device,
            dtype=bench.TORCH_DTYPES[asked.dtype],
        )
        for heads in (layer.heads_q, layer.heads_kv, layer.heads_kv)
    )
    return q, k, v


def _three_kernels(asked: Question, sets: Sequence[tuple[torch.Tensor, ...]]) -> bench.Call:
    """S = Q K^T, P = softmax(S), O = P V, each into memory of its own.

    Heads that share K and V stand below one another, and the scale is in Q already: nothing is
    copied, repeated or scaled while the clock runs.
    """
    layer = asked.layer
    heads, group = layer.batch * layer.heads_kv, layer.heads_q // layer.heads_kv
    rows, d = group * layer.seqlen_q, layer.head_dim

    def stacked(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(heads, -1, d).contiguous()

    prepared = [(stacked(q * d**-0.5), stacked(k).mT, stacked(v)) for q, k, v in sets]
    s = prepared[0][0].new_empty((heads, rows, layer.seqlen_kv))
    p, o = torch.empty_like(s), torch.empty_like(prepared[0][0])

    def naive() -> torch.Tensor:
        for q, k_transposed, v in prepared:
            torch.bmm(q, k_transposed, out=s)
            torch.softmax(s, -1, out=p)
            torch.bmm(p, v, out=o)
        return o

    return naive


def record(
    asked: Question, variant: str, times: dict[str, list[float]], left_out: str = ""
) -> dict[str, Any]:
    """A record of the results format.

    Args:
        asked: The shape and the GPU.
        variant: The generated kernel's name.
        times: Microseconds of each round of "kernel" and, where it fits, of "naive".
        left_out: Why there is no "naive", if there is none.
    """
    told = roofline.facts(asked)
    layer, medians = asked.layer, {name: statistics.median(x) for name, x in times.items()}
    found = {
        "op": "attention_fwd",
        "variant": variant,
        "dtype": asked.dtype,
        "shape": {
            "batch": layer.batch,
            "seqlen": layer.seqlen_kv,
            "heads_q": layer.heads_q,
            "heads_kv": layer.heads_kv,
            "head_dim": layer.head_dim,
        },
        "causal": False,
        "gpu": asked.gpu.name,
        "metric": "us",
        "value": round(medians["kernel"], 2),
        "floor": round(1e3 * told["fused"]["layer_ms"], 2),
        "bytes": told["fused"]["bytes"],
        "naive_floor": round(1e3 * told["three_kernels"]["layer_ms"], 2),
        "naive_bytes": told["three_kernels"]["bytes"],
        "peers": {},
    }
    if "naive" not in medians:
        return {**found, "left_out": {"naive": left_out}}
    ratios = [a / b for a, b in zip(times["naive"], times["kernel"], strict=True)]
    return {
        **found,
        "peers": {"naive": round(medians["naive"], 2)},
        "best_peer": "naive",
        "ratio": round(statistics.median(ratios), 3),
    }


def line(found: dict[str, Any]) -> str:
    """A record as a line under TITLE."""
    naive = found["peers"].get("naive")
    gib, ms = cost.GIB, 1e-3
    gone = 100 * (1 - found["bytes"] / found["naive_bytes"])
    three = f"{naive * ms:10.3f}" if naive else "left out"
    why = "".join(f"; three kernels: {reason}" for reason in found.get("left_out", {}).values())
    return (
        f"{found['shape']['seqlen']:8d}"
        f"   {found['naive_bytes'] / gib:9.3f} GiB {three:>12} {found['naive_floor'] * ms:9.3f}"
        f"   {found['bytes'] / gib:9.3f} GiB {found['value'] * ms:9.3f} {found['floor'] * ms:9.3f}"
        f"   {found.get('ratio') or 'no':>6} {'x' if naive else ' '}   {gone:8.2f} %{why}"
    )
