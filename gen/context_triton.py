"""The names that the portable templates use beside those of every family."""

from __future__ import annotations

import textwrap
from typing import Any

from attngen import context_attention
from attngen.config import padded
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

_TL_DTYPES = {"fp16": "tl.float16", "bf16": "tl.bfloat16", "fp32": "tl.float32"}


def names(variant: Variant) -> dict[str, Any]:
    """What templates/triton uses of a variant."""
    spec: AttentionFwd = variant.spec
    arguments = _kernel_arguments(spec)
    return {
        **context_attention.names(spec),
        "summary": _summary(variant),
        "tl_dtype": _TL_DTYPES[spec.dtype],
        "block_dv": padded(spec.head_dim_v),
        "pads_dv": padded(spec.head_dim_v) != spec.head_dim_v,
        # Without "ieee" a float32 product is made of tf32 pieces.
        "dot_options": ', input_precision="ieee"' if spec.dtype == "fp32" else "",
        # Are scores changed in natural units before the exponent, or is s the bare product?
        "natural_scores": spec.softcap or spec.alibi or spec.bias,
        "exponent_scale": "LOG2_E" if _natural_scores(spec) else "sm_scale * LOG2_E",
        "natural_m": "m" if _natural_scores(spec) or spec.sinks else "m * sm_scale",
        "ranges": spec.causal or spec.window,
        "positions": _positions(spec),
        "offsets_by_sequence": _positions(spec),
        "interprets": True,
        "bulk_copies": False,
        "v_columns": "HEAD_DIM_V",
        "score_tensors": _score_tensors(spec),
        "full_blocks_need_keys": _full_blocks_need_keys(spec),
        "full_block_start": "start_n" if _full_blocks_need_keys(spec) else "_",
        "expands": bool(_score_tensors(spec)) or spec.alibi,
        "heads_together": 8,
        "kernel_parameters": list(arguments),
        "kernel_arguments": list(arguments.values()),
        "kernel_signature": {name: _triton_type(name, spec) for name in arguments},
        "unspecialised": _unspecialised(spec),
        "specialisations": [{"causal_offset_ptr": None} if _positions(spec) else {}],
    }


def _natural_scores(spec: AttentionFwd) -> bool:
    return spec.softcap or spec.alibi or spec.bias


def _full_blocks_need_keys(spec: AttentionFwd) -> bool:
    """Must a block that no mask cuts still know which keys it holds?"""
    return spec.alibi or spec.bias or spec.mask


def _positions(spec: AttentionFwd) -> bool:
    """Does a query's position among the keys matter?"""
    return spec.causal or spec.window or spec.alibi


def _score_tensors(spec: AttentionFwd) -> list[str]:
    """The tensors that are shaped like the scores."""
    return [name for name in ("bias", "mask") if getattr(spec, name)]


def _kernel_arguments(spec: AttentionFwd) -> dict[str, str]:
    """The kernel's parameters, in order, and what the launcher passes for each."""
    arguments = {"q_ptr": "q", "k_ptr": "k", "v_ptr": "v", "o_ptr": "out", "lse_ptr": "lse"}
    tensors = ["q", "k", "v", "o"]
    strides: dict[str, tuple[str, ...]] = {}
    strides |= {tensor: ("b", "m" if tensor in "qo" else "n", "h") for tensor in tensors}
    for tensor in _score_tensors(spec):
        arguments[f"{tensor}_ptr"] = tensor
        strides[tensor] = ("b", "h", "m", "n")
    if spec.alibi:
        arguments["alibi_slopes_ptr"] = "alibi_slopes"
        strides["alibi_slopes"] = ("b", "h")
    if spec.sinks:
        arguments["sinks_ptr"] = "sinks"
        strides["sinks"] = ("h",)
    if _positions(spec):
        arguments["causal_offset_ptr"] = "offsets"
    for tensor, dimensions in strides.items():
        for i, dimension in enumerate(dimensions):
            owner = "out" if tensor == "o" else tensor
            separator = "_" if len(tensor) > 1 else ""
            arguments[f"stride_{tensor}{separator}{dimension}"] = f"{owner}.stride({i})"
    for size in _sizes(spec):
        arguments[size] = size
    arguments["heads_q"] = "heads_q"
    arguments["group_size"] = "heads_q // heads_kv"
    arguments["num_heads"] = "num_heads"
    arguments["heads_together"] = "min(HEADS_TOGETHER, num_heads)"
    # log2(e) times it still fits in float32.
    arguments["sm_scale"] = "min(sm_scale, 2.3e38)"
    if spec.softcap:
        arguments["softcap"] = "softcap"
    return arguments


def _sizes(spec: AttentionFwd) -> list[str]:
    sizes = ["seqlen_q", "seqlen_kv"]
    if _positions(spec):
        sizes.append("causal_offset")
    if spec.window:
        sizes.append("window_left")
    if spec.window and not spec.causal:
        sizes.append("window_right")
    return sizes


def _unspecialised(spec: AttentionFwd) -> list[str]:
    """Sizes that change from call to call: no value of theirs is worth a new compilation."""
    return [*_sizes(spec), "heads_q", "group_size", "num_heads", "heads_together"]


def _triton_type(parameter: str, spec: AttentionFwd) -> str:
    """What Triton calls the type of a kernel parameter in the usual call; "constexpr" is None."""
    pointers = {
        "lse_ptr": "*fp32",
        "bias_ptr": "*fp32",
        "mask_ptr": "*i1",
        "alibi_slopes_ptr": "*fp32",
        "sinks_ptr": "*fp32",
        "causal_offset_ptr": "constexpr",
    }
    if parameter.endswith("_ptr"):
        return pointers.get(parameter, f"*{spec.dtype}")
    return "fp32" if parameter in ("sm_scale", "softcap") else "i32"


def _summary(variant: Variant) -> list[str]:
    config = variant.config
    return textwrap.wrap(
        f"One program computes {config.block_m} query rows of one head, {config.block_n} keys at a"
        " time, and keeps for each row the largest score so far (m), the sum of exp(s - m) (l) and"
        " the same sum weighted by v (acc), rescaled when m grows: Milakov and Gimelshein, arXiv"
        " 1805.02867, section 3; Dao, arXiv 2307.08691, section 3.1. All sums are float32.",
        width=99,
    )
