"""The names that the portable templates use beside those of every family."""

from __future__ import annotations

import textwrap
from typing import Any

from attngen import context_attention
from attngen.config import padded
from attngen.launch import Launch, units
from attngen.layouts_triton import LAYOUTS
from attngen.spec_attention import AttentionFwd, AttentionPaged, AttentionVarlen
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
        "ranges": spec.causal or spec.window,
        "positions": _positions(spec),
        # Where no offset is given, does the kernel work out each sequence's own?
        "bottom_right": _positions(spec) and isinstance(spec, AttentionVarlen),
        "default_offset": "BOTTOM_RIGHT.value"
        if isinstance(spec, AttentionVarlen)
        else "seqlen_kv - seqlen_q",
        "offsets_by_sequence": _positions(spec),
        "interprets": True,
        "bulk_copies": False,
        "v_columns": "HEAD_DIM_V",
        "score_tensors": _score_tensors(spec),
        "last_rows_first": spec.causal and isinstance(spec, AttentionVarlen),
        "full_blocks_need_keys": _full_blocks_need_keys(spec),
        "full_block_start": "start_n" if _full_blocks_need_keys(spec) else "_",
        "num_heads": LAYOUTS[spec.op].heads,
        "expands": bool(_score_tensors(spec)) or spec.alibi,
        "heads_together": 8,
        "kernel_parameters": list(arguments),
        "kernel_arguments": list(arguments.values()),
        "kernel_signature": {name: _triton_type(name, spec) for name in arguments},
        "unspecialised": _unspecialised(spec),
        "launches": [Launch(variant.name, _constants(spec, arguments))],
    }


def _natural_scores(spec: AttentionFwd) -> bool:
    return spec.softcap or spec.alibi or spec.bias


def _full_blocks_need_keys(spec: AttentionFwd) -> bool:
    """Must a block that no mask cuts still know which keys it holds?"""
    return spec.alibi or spec.bias or spec.mask or isinstance(spec, AttentionPaged)


def _positions(spec: AttentionFwd) -> bool:
    """Does a query's position among the keys matter?"""
    return spec.causal or spec.window or spec.alibi


def _score_tensors(spec: AttentionFwd) -> list[str]:
    """The tensors that are shaped like the scores."""
    return [name for name in ("bias", "mask") if getattr(spec, name)]


def _kernel_arguments(spec: AttentionFwd) -> dict[str, str]:
    """The kernel's parameters, in order, and what the launcher passes for each."""
    layout = LAYOUTS[spec.op]
    owners = dict(layout.tensors)
    strides = dict(layout.strides)
    arguments = {f"{tensor}_ptr": owner for tensor, owner in owners.items()} | {"lse_ptr": "lse"}
    arguments |= {f"{name}_ptr": name for name in layout.indices}
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
            separator = "_" if len(tensor) > 1 else ""
            owner = owners.get(tensor, tensor)
            arguments[f"stride_{tensor}{separator}{dimension}"] = f"{owner}.stride({i})"
    arguments |= _sizes(spec)
    arguments["heads_q"] = "heads_q"
    arguments["group_size"] = "heads_q // heads_kv"
    arguments[layout.heads] = layout.heads
    arguments["heads_together"] = f"min(HEADS_TOGETHER, {layout.heads})"
    # log2(e) times it still fits in float32.
    arguments["sm_scale"] = "min(sm_scale, 2.3e38)"
    if spec.softcap:
        arguments["softcap"] = "softcap"
    return arguments


def _sizes(spec: AttentionFwd) -> dict[str, str]:
    sizes = ["causal_offset"] if _positions(spec) else []
    if spec.window:
        sizes.append("window_left")
    if spec.window and not spec.causal:
        sizes.append("window_right")
    return LAYOUTS[spec.op].sizes | {size: size for size in sizes}


def _unspecialised(spec: AttentionFwd) -> list[str]:
    """Sizes that change from call to call: no value of theirs is worth a new compilation."""
    heads = dict.fromkeys(("heads_q", "group_size", LAYOUTS[spec.op].heads))
    return [*_sizes(spec), *heads, "heads_together"]


def _triton_type(parameter: str, spec: AttentionFwd) -> str:
    """What Triton calls the type of a kernel parameter in the usual call."""
    pointers = {
        "lse_ptr": "*fp32",
        "mask_ptr": "*u1",
        "alibi_slopes_ptr": "*fp32",
        "sinks_ptr": "*fp32",
        "causal_offset_ptr": "*i64",
        **{f"{name}_ptr": "*i32" for name in LAYOUTS[spec.op].indices},
    }
    if parameter.endswith("_ptr"):
        return pointers.get(parameter, f"*{spec.dtype}")
    return "fp32" if parameter in ("sm_scale", "softcap") else "i32"


def _constants(spec: AttentionFwd, arguments: dict[str, str]) -> dict[str, Any]:
    """What is a constant to the compiler in the usual call."""
    return units(arguments) | ({"causal_offset_ptr": None} if _positions(spec) else {})


def _summary(variant: Variant) -> list[str]:
    config = variant.config
    return textwrap.wrap(
        f"One program computes {config.block_m} query rows of one head, {config.block_n} keys at a"
        " time, and keeps for each row the largest score so far (m), the sum of exp(s - m) (l) and"
        " the same sum weighted by v (acc), rescaled when m grows: Milakov and Gimelshein, arXiv"
        " 1805.02867, section 3; Dao, arXiv 2307.08691, section 3.1. All sums are float32.",
        width=99,
    )
