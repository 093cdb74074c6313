"""What the traffic and the arithmetic of a shape allow on a GPU: three kernels against one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from attngen.errors import InvalidSpec
from attngen.reference import cost
from attngen.reference.cost import Attention, Gpu
from attngen.spec import DTYPES

ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4}
"""Bytes an element."""
LONGEST = 2**31 - 1
BLOCK_N = 64
"""Keys a step, for the share of the rescale."""


@dataclass(frozen=True)
class Question:
    """One layer's attention on one GPU.

    Attributes:
        layer: Its shape.
        gpu: Its rates, those of float32 products where the dtype is fp32.
        dtype: "fp16", "bf16" or "fp32".
        layers: Layers of the model.
        decode: Is there one query a sequence?
        taken: Bytes of memory that are taken already, as by weights.
    """

    layer: Attention
    gpu: Gpu
    dtype: str
    layers: int
    decode: bool
    taken: float

    def of_length(self, seqlen: int) -> Question:
        """The same with another sequence length."""
        seqlen_q = 1 if self.decode else seqlen
        return replace(self, layer=replace(self.layer, seqlen_q=seqlen_q, seqlen_kv=seqlen))


def ask(
    *,
    seqlen: int = 8192,
    heads_q: int = 32,
    heads_kv: int = 8,
    head_dim: int = 128,
    batch: int = 1,
    layers: int = 32,
    dtype: str = "bf16",
    gpu: str = "H100",
    decode: bool = False,
    taken_gb: float = 0.0,
) -> Question:
    """A checked question; the defaults are the layers of Llama-3-8B on an H100.

    Args:
        seqlen: Queries and keys of a sequence; of decode keys only.
        heads_q: Query heads, a multiple of heads_kv.
        heads_kv: KV heads.
        head_dim: Columns of q, k and v.
        batch: Sequences.
        layers: Layers of the model.
        dtype: One of DTYPES.
        gpu: One of `cost.GPUS`.
        decode: One query a sequence.
        taken_gb: Gigabytes (1e9 bytes) of memory that are taken already.

    Raises:
        InvalidSpec: naming every argument that is wrong, what was got and what is allowed.
    """
    sizes = {"seqlen": seqlen, "heads-q": heads_q, "heads-kv": heads_kv, "head-dim": head_dim}
    sizes |= {"batch": batch, "layers": layers}
    wrong = [
        f"--{name}: got {size}, allowed is 1 to {LONGEST}"
        for name, size in sizes.items()
        if not 1 <= size <= LONGEST
    ]
    if heads_kv >= 1 and heads_q % heads_kv:
        wrong.append(f"--heads-q: got {heads_q}, allowed is a multiple of --heads-kv, {heads_kv}")
    if dtype not in DTYPES:
        wrong.append(f"--dtype: got {dtype!r}, allowed are {', '.join(DTYPES)}")
    if gpu not in cost.GPUS:
        wrong.append(f"--gpu: got {gpu!r}, allowed are {', '.join(cost.GPUS)}")
    if not 0 <= taken_gb <= 1e6:
        wrong.append(f"--taken-gb: got {taken_gb}, allowed is 0 to 1e6")
    if wrong:
        raise InvalidSpec("; ".join(wrong))
    layer = Attention(
        seqlen_q=1 if decode else seqlen,
        seqlen_kv=seqlen,
        heads_q=heads_q,
        heads_kv=heads_kv,
        head_dim=head_dim,
        batch=batch,
        element=ELEMENT[dtype],
    )
    rates = cost.GPUS[gpu].in_float32() if dtype == "fp32" else cost.GPUS[gpu]
    return Question(layer, rates, dtype, layers, decode, 1e9 * taken_gb)


def facts(question: Question) -> dict[str, Any]:
    """Everything that the model says, as data; units are in the names."""
    layer, gpu = question.layer, question.gpu
    longest = cost.largest_naive_seqlen(layer, gpu, question.taken)
    return {
        "gpu": {
            "name": gpu.name,
            "tflops": gpu.peak_flops / 1e12,
            "tbps": gpu.bandwidth / 1e12,
            "memory_gb": gpu.memory / 1e9,
            "ridge_flop_per_byte": gpu.ridge,
            "source": gpu.source,
        },
        "shape": vars(layer),
        "dtype": question.dtype,
        "layers": question.layers,
        "flop": layer.flops,
        "s_bytes": layer.s_bytes,
        "intermediate_share": layer.intermediate_bytes / layer.materialised_bytes,
        "three_kernels": _way(question, layer.materialised_bytes),
        "fused": _way(question, layer.fused_bytes),
        "fused_one_head_flop_per_byte": layer.head().fused_intensity,
        # The rule for the largest length is one of as many queries as keys.
        "largest_seqlen_of_three_kernels": None if question.decode else longest,
        "decode_flop_per_byte": cost.decode_intensity(layer.heads_q, layer.heads_kv, layer.element),
        "merge_bytes": cost.merge_bytes(layer.head_dim, layer.element),
        "merge_flop": cost.merge_flops(layer.head_dim),
        f"rescale_share_at_block_n_{BLOCK_N}": cost.rescale_share(BLOCK_N),
    }


def _way(question: Question, traffic: int) -> dict[str, Any]:
    """What one way to compute it moves, and the least time that takes."""
    intensity = question.layer.flops / traffic
    floor = 1e3 * cost.roofline_time(question.layer.flops, traffic, question.gpu)
    return {
        "bytes": traffic,
        "flop_per_byte": intensity,
        "over_ridge": intensity / question.gpu.ridge,
        "bound_by": "memory" if intensity < question.gpu.ridge else "arithmetic",
        "layer_ms": floor,
        "all_layers_ms": floor * question.layers,
    }


def lines(question: Question) -> Iterator[str]:
    """The same as lines to read."""
    layer, gpu, told = question.layer, question.gpu, facts(question)
    three, fused = told["three_kernels"], told["fused"]
    longer = question.of_length(4 * layer.seqlen_kv).layer
    yield f"Attention of one layer, {_shape(question)}"
    yield (
        f"on {gpu.name}: {gpu.peak_flops / 1e12:g} TFLOP/s, {gpu.bandwidth / 1e12:g} TB/s,"
        f" ridge {_intensity(gpu.ridge)} FLOP/byte"
    )
    yield ""
    yield (
        f"S              {_bytes(layer.s_bytes, 2)};"
        f" {_bytes(longer.s_bytes, 1)} at length {longer.seqlen_kv}"
    )
    yield f"arithmetic     {layer.flops:.4e} FLOP".replace("e+", "e")
    yield ""
    yield _row("", "three kernels", "one fused kernel")
    yield _row("traffic", *(_bytes(way["bytes"], 3) for way in (three, fused)))
    yield _row("of it S and P", f"{100 * told['intermediate_share']:.0f} %", "none")
    yield _row(
        "intensity", *(f"{_intensity(w['flop_per_byte'])} FLOP/byte" for w in (three, fused))
    )
    yield _row("the ridge", *(_against(way["over_ridge"]) for way in (three, fused)))
    yield _row("bound by", three["bound_by"], fused["bound_by"])
    yield _row("floor, a layer", *(_ms(way["layer_ms"], 2) for way in (three, fused)))
    all_layers = f"{question.layers} layers" if question.layers > 1 else "1 layer"
    yield _row(f"{all_layers}", *(_ms(way["all_layers_ms"], 1) for way in (three, fused)))
    yield ""
    yield from _remarks(question, told)


def _remarks(question: Question, told: dict[str, Any]) -> Iterator[str]:
    three, fused = told["three_kernels"], told["fused"]
    one_head = _intensity(told["fused_one_head_flop_per_byte"])
    yield (
        f"Fusing raises the intensity by a factor of {three['bytes'] / fused['bytes']:.3g}."
        f" Fused, a head that shares K and V with nobody has {one_head} FLOP/byte."
    )
    if (longest := told["largest_seqlen_of_three_kernels"]) is not None:
        beside = f", beside {question.taken / 1e9:g} GB that are taken," if question.taken else ""
        yield (
            f"Three kernels fit {question.gpu.memory / 1e9:g} GB of memory{beside}"
            f" up to length {longest}."
        )
    yield (
        f"Decode: 2 heads_q / (bytes an element * heads_kv) = {told['decode_flop_per_byte']:g}"
        " FLOP/byte over a long cache."
    )
    yield (
        f"One merge of two states: {told['merge_bytes']} bytes for about {told['merge_flop']} FLOP"
        " a token and head."
    )
    yield (
        "The rescale costs 1/BLOCK_N of the multiply-adds:"
        f" {100 * cost.rescale_share(BLOCK_N):.1f} % at BLOCK_N {BLOCK_N}."
    )


def _shape(question: Question) -> str:
    layer = question.layer
    lengths = f"1 query, {layer.seqlen_kv} keys" if question.decode else f"length {layer.seqlen_kv}"
    return (
        f"batch {layer.batch}, {lengths}, {layer.heads_q} query heads, {layer.heads_kv} KV heads,"
        f" head dim {layer.head_dim}, {question.dtype}"
    )


def _row(name: str, three: str, fused: str) -> str:
    return f"{name:<15}{three:<20}{fused}".rstrip()


def _bytes(size: float, digits: int) -> str:
    units = ("bytes", "KiB", "MiB", "GiB")
    power = max((p for p in (1, 2, 3) if size >= 0.1 * 1024**p), default=0)
    return f"{size / 1024**power:.{digits if power else 0}f} {units[power]}"


def _intensity(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 10 or value >= 1000 else f"{value:.0f}"


def _against(ratio: float) -> str:
    factor = max(ratio, 1 / ratio)
    return f"{factor:.{0 if factor >= 10 else 1}f}x {'past it' if ratio >= 1 else 'short of it'}"


def _ms(milliseconds: float, digits: int) -> str:
    return f"{milliseconds:.{digits}f} ms" if milliseconds >= 1 else f"{milliseconds:.3g} ms"
