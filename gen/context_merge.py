"""The names that the templates of the merges use."""

from __future__ import annotations

import textwrap
from typing import Any

from attngen.config import ELEMENT_BYTES, next_power_of_2
from attngen.context_attention import DTYPE_WORDS
from attngen.launch import Launch, units
from attngen.spec_merge import Merge, MergeStates
from attngen.variant import Variant

_TL_DTYPES = {
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp32": "tl.float32",
    "fp8": "tl.float8e4nv",
}
_WORDS = {**DTYPE_WORDS, "fp8": "float8_e4m3fn"}
_CHUNK_BYTES = 128
"""Bytes of a row that its threads take at once: with 16 each, eight threads share its weights."""
_BLOCK_STATES = 8
"""States whose lse a program reads at once: the splits of a decode step are about as many."""


def names(variant: Variant) -> dict[str, Any]:
    """What the templates of the merges use of a variant."""
    spec: Merge = variant.spec
    parameters = _parameters(spec)
    block_d = next_power_of_2(spec.head_dim)
    block_c = min(block_d, _CHUNK_BYTES // ELEMENT_BYTES[spec.dtype])
    return {
        "title": _title(spec),
        "summary": _summary(variant),
        "block_c": block_c,
        "chunks": block_d // block_c,
        "pads_d": block_d != spec.head_dim,
        "ragged": _ragged(spec),
        "lse_state_dim": "token" if _ragged(spec) else "0",
        "block_states": _BLOCK_STATES,
        "torch_out_dtype": f"torch.{_WORDS[spec.out_dtype]}",
        "tl_out_dtype": _TL_DTYPES[spec.out_dtype],
        "out_dtype_words": _WORDS[spec.out_dtype],
        "widen": "" if spec.dtype == "fp32" else ".to(tl.float32)",
        "may_overflow": spec.dtype == "fp32",
        "log": "tl.math.log2" if spec.base2 else "tl.log",
        "exp_word": "exp2" if spec.base2 else "exp",
        "log_word": "log2" if spec.base2 else "log",
        "log_words": "logarithm to base 2" if spec.base2 else "natural logarithm",
        "most_states": "most_states" if _ragged(spec) else "num_states",
        "kernel_parameters": [*parameters, "PDL: tl.constexpr"],
        "kernel_signature": {name: _triton_type(name, spec) for name in parameters},
        "unspecialised": _sizes(spec),
        "launches": [Launch(variant.name, _constants(spec, parameters), early=True)],
    }


def _ragged(spec: Merge) -> bool:
    return isinstance(spec, MergeStates) and spec.ragged


def _inputs(spec: Merge) -> tuple[str, ...]:
    return ("o", "lse") if isinstance(spec, MergeStates) else ("o_a", "lse_a", "o_b", "lse_b")


def _parameters(spec: Merge) -> list[str]:
    """The kernel's parameters, in the order in which the launcher passes them."""
    inputs = _inputs(spec)
    pointers = [*inputs, *(["indptr"] if _ragged(spec) else []), "out", "out_lse"]
    if spec.out_fp8:
        pointers.append("output_scale")
    dims = ("batch", "token", "head")
    if isinstance(spec, MergeStates):
        tensors = ["out", "out_lse", *([] if spec.ragged else ["o", "lse"])]
        last = ["stride_o_state", "stride_lse_state"]
        last += ["stride_o_head", "stride_lse_head", "stride_indptr"] if spec.ragged else []
    else:
        tensors, last = [*inputs, "out", "out_lse"], []
    strides = [f"stride_{tensor}_{dim}" for tensor in tensors for dim in dims]
    return [*(f"{pointer}_ptr" for pointer in pointers), *strides, *last, *_sizes(spec)]


def _constants(spec: Merge, parameters: list[str]) -> dict[str, Any]:
    """What is one in the usual call, with lse as [heads, tokens]; a ragged list's has states."""
    return {"PDL": False, **units(parameters)} | ({"stride_lse_state": 1} if _ragged(spec) else {})


def _sizes(spec: Merge) -> list[str]:
    """The sizes that change from call to call: no value is worth a new compilation."""
    if isinstance(spec, MergeStates):
        return ["num_states", "tokens", "heads", "tiles_a_sequence"]
    return ["tokens", "heads", "tiles_a_sequence", "tokens_with_context"]


def _triton_type(parameter: str, spec: Merge) -> str:
    """What Triton calls the type of a kernel parameter in the usual call."""
    if not parameter.endswith("_ptr"):
        return "i32"
    if parameter == "out_ptr":
        return "*fp8e4nv" if spec.out_fp8 else f"*{spec.out_dtype}"
    if parameter == "indptr_ptr":
        return "*i32"
    is_float32 = "lse" in parameter or parameter == "output_scale_ptr"
    return "*fp32" if is_float32 else f"*{spec.dtype}"


def _title(spec: Merge) -> str:
    count = "attention states" if isinstance(spec, MergeStates) else "two attention states"
    words = [f"Merge of {'ragged ' if _ragged(spec) else ''}{count}"]
    words += [f"head dim {spec.head_dim}", _WORDS[spec.dtype]]
    if spec.out_dtype != spec.dtype:
        words.append(f"o {_WORDS[spec.out_dtype]}")
    if spec.base2:
        words.append("base 2")
    return ", ".join(words)


def _summary(variant: Variant) -> list[str]:
    rows = variant.config.block_m
    again = " It reads every lse twice: for the sum of the weights, and for each state's scale."
    return textwrap.wrap(
        f"One program merges {rows} row{'s'[: rows != 1]}, each one head of one token. A state"
        " (o, lse) is the mean of some keys' values and the logarithm of their total weight;"
        " states over disjoint keys form a commutative monoid: Dao et al., arXiv 2205.14135,"
        " section 3.1."
        + (again if isinstance(variant.spec, MergeStates) else "")
        + " All arithmetic is float32.",
        width=99,
    )
