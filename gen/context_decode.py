"""The names that the decode templates use beside those of all attention."""

from __future__ import annotations

import textwrap
from typing import Any

from attngen import context_attention, tiles_decode
from attngen.config import padded
from attngen.launch import Launch, units
from attngen.spec_attention import AttentionDecode
from attngen.variant import Variant

_TL_DTYPES = {"fp16": "tl.float16", "bf16": "tl.bfloat16", "fp32": "tl.float32"}
_POINTERS = {
    "m_ptr": "*fp32",
    "l_ptr": "*fp32",
    "lse_ptr": "*fp32",
    "m_split_ptr": "*fp32",
    "l_split_ptr": "*fp32",
    "seqlens_kv_ptr": "*i32",
    "block_table_ptr": "*i32",
    "alibi_slopes_ptr": "*fp32",
    "sinks_ptr": "*fp32",
    "causal_offset_ptr": "*i64",
}

_WANTED_IN_FLIGHT = 96 << 10
"""Bytes that a processor of an H200 has on their way when memory is busy, as measured."""

_MERGED = ("acc_split_ptr", "m_split_ptr", "l_split_ptr", "lse_ptr", "heads_q")
"""The parameters of the merge of splits that the first kernel has not."""
_MERGE_OPTIONS = {"num_warps": 4, "num_stages": 3}


def names(variant: Variant) -> dict[str, Any]:
    """What templates/triton/attention_decode.py.jinja uses of a variant."""
    spec: AttentionDecode = variant.spec
    natural_scores = spec.softcap or spec.alibi
    positions = spec.causal or spec.window or spec.alibi
    arguments = _arguments(spec, positions)
    # What the usual call does not give: Triton takes None for a constant.
    left_out = [*([] if spec.paged else ["seqlens_kv_ptr"])]
    left_out += ["causal_offset_ptr"] if positions else []
    in_flight = tiles_decode.bytes_in_flight(spec, variant.config)
    constants: dict[str, Any] = {"PDL": False, **dict.fromkeys(left_out)}
    constants |= units(arguments) | ({"PAGE_SIZE": 16} if spec.paged else {})
    whole = {"o_ptr": f"*{spec.dtype}"}
    return {
        **context_attention.names(spec),
        "summary": _summary(variant),
        "tl_dtype": _TL_DTYPES[spec.dtype],
        "block_dv": padded(spec.head_dim_v),
        "block_s": max(2, min(64, 2**12 // padded(spec.head_dim_v))),
        "pads_dv": padded(spec.head_dim_v) != spec.head_dim_v,
        # Without "ieee" a float32 product is made of tf32 pieces.
        "dot_options": ', input_precision="ieee"' if spec.dtype == "fp32" else "",
        # Are scores changed in natural units before the exponent, or is s the bare product?
        "natural_scores": natural_scores,
        "finish_scale": "1.0" if natural_scores else "sm_scale",
        "exponent_scale": "LOG2_E" if natural_scores else "sm_scale * LOG2_E",
        "ranges": spec.causal or spec.window,
        "positions": positions,
        # The kernel adds what a sequence's own length makes of it.
        "default_offset": "0",
        "score_tensors": [],
        "interprets": True,
        "expands": spec.alibi,
        "kernel_parameters": [
            *(f"{name}: tl.constexpr" if name.isupper() else name for name in arguments),
            "PDL: tl.constexpr",
        ],
        "kernel_arguments": list(arguments.values()),
        "kernel_signature": {name: _triton_type(name, spec) for name in (*arguments, *_MERGED)},
        "unspecialised": [name for name in arguments if _is_count(name)],
        "wanted_kb": _WANTED_IN_FLIGHT >> 10,
        "programs_a_processor": min(8, -(-_WANTED_IN_FLIGHT // in_flight)),
        # Several splits leave their states in float32, which are merged; one is o itself.
        "launches": [
            Launch(variant.name, constants),
            Launch(variant.name, constants, whole),
            Launch("merge_splits", constants, whole, _MERGE_OPTIONS, early=True),
        ],
    }


def _arguments(spec: AttentionDecode, positions: bool) -> dict[str, str]:
    """The kernel's parameters, in order, and what the launcher passes for each."""
    arguments = {"q_ptr": "q", "k_ptr": "k", "v_ptr": "v", "o_ptr": "o_split"}
    arguments |= {"m_ptr": "m_split", "l_ptr": "l_split", "seqlens_kv_ptr": "seqlens_kv"}
    strides: dict[str, tuple[str, ...]]
    strides = {"q": ("b", "m", "h"), "k": ("b", "n", "h"), "v": ("b", "n", "h")}
    if spec.paged:
        arguments["block_table_ptr"] = "block_table"
    if spec.alibi:
        arguments["alibi_slopes_ptr"] = "alibi_slopes"
        strides["alibi_slopes"] = ("b", "h")
    if spec.sinks:
        arguments["sinks_ptr"] = "sinks"
        strides["sinks"] = ("h",)
    if positions:
        arguments["causal_offset_ptr"] = "offsets"
    for tensor, dimensions in strides.items():
        separator = "_" if len(tensor) > 1 else ""
        for i, dimension in enumerate(dimensions):
            arguments[f"stride_{tensor}{separator}{dimension}"] = f"{tensor}.stride({i})"
    for i, dimension in enumerate(("s", "b", "m", "h")):
        arguments[f"stride_o{dimension}"] = f"o_split.stride({i})"
    arguments["stride_ls"] = "m_split.stride(0)"
    if spec.paged:
        arguments |= {"stride_tb": "block_table.stride(0)", "stride_tp": "block_table.stride(1)"}
    arguments |= {name: name for name in ("seqlen_q", "seqlen_kv", "heads_kv")}
    arguments |= {"group_size": "heads_q // heads_kv"}
    arguments |= {name: name for name in ("num_splits", "split_size")}
    if positions:
        arguments |= {"causal_offset": "causal_offset", "from_end": "int(from_end)"}
    if spec.window:
        arguments["window_left"] = "window_left"
    if spec.window and not spec.causal:
        arguments["window_right"] = "window_right"
    # log2(e) times it still fits in float32.
    arguments["sm_scale"] = "min(sm_scale, 2.3e38)"
    if spec.softcap:
        arguments["softcap"] = "softcap"
    if spec.paged:
        # A cache has one size of page: divisions by it are worth a compilation.
        arguments["PAGE_SIZE"] = "page_size"
    return arguments


def _is_count(parameter: str) -> bool:
    """Does it change from call to call, so that no value of it is worth a new compilation?"""
    kept = ("_ptr", "sm_scale", "softcap", "PAGE_SIZE")
    return not parameter.endswith(kept) and not parameter.startswith("stride_")


def _triton_type(parameter: str, spec: AttentionDecode) -> str:
    """What Triton calls the type of a kernel parameter in the usual call, with several splits."""
    if parameter in ("o_ptr", "acc_split_ptr"):
        return "*fp32"
    if parameter.endswith("_ptr"):
        return _POINTERS.get(parameter, f"*{spec.dtype}")
    return "fp32" if parameter in ("sm_scale", "softcap") else "i32"


def _summary(variant: Variant) -> list[str]:
    config = variant.config
    return textwrap.wrap(
        f"One program takes {config.block_m} rows, which are queries times the query heads that"
        f" share a KV head, over one split of the keys, {config.block_n} at a time, and leaves"
        " their state (m, l, acc) in float32; a second kernel merges the splits' states"
        " (FlashAttention, arXiv 2205.14135, section 3.1; Flash-Decoding). The recurrence is that"
        " of Milakov and Gimelshein, arXiv 1805.02867, section 3. All sums are float32.",
        width=99,
    )
