"""The names that the row softmax templates use, alone and with top-k."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from attngen.config import next_power_of_2
from attngen.context_attention import DTYPE_WORDS
from attngen.launch import Launch
from attngen.spec_softmax import Softmax, SoftmaxTopk
from attngen.tiles_softmax import lanes, row_block
from attngen.variant import Variant

_SUMMARIES = {
    "single": "One program computes whole rows, {rows} at a time, which stay in its registers: x is"
    " read once.",
    "online": "One program computes one row in two passes. In the first each thread keeps the state"
    " of its own columns, the largest so far (m) and the sum of exp(x - m) (l), rescaled when m"
    " grows, and the threads' states are merged at its end; the second writes, from the end of the"
    " row to its beginning, since the end was read last. Milakov and Gimelshein, arXiv 1805.02867,"
    " algorithm 3.",
    "safe": "One program computes one row in three passes: the largest entry (m), the sum of"
    " exp(x - m) (l), the output. Milakov and Gimelshein, arXiv 1805.02867, algorithm 2.",
    "split": "A row is cut into parts of {columns} columns, one a program. A first launch computes"
    " the state of every part, its largest entry (m) and the sum of exp(x - m) (l); in a second one"
    " each program merges the states of its row and writes its part. The parts do not depend on how"
    " many rows there are. Milakov and Gimelshein, arXiv 1805.02867, section 3.1.",
}
_TOPK_SUMMARY = (
    "One program goes through one row once. Each thread keeps the state of its own columns, the"
    " largest so far (m) and the sum of exp(x - m) (l); the program keeps the K largest entries of"
    " the row, and searches a step for more only if its largest entry is above the least of them."
    " Milakov and Gimelshein, arXiv 1805.02867, section 4."
)


def softmax(variant: Variant) -> dict[str, Any]:
    """What templates/triton/softmax.py.jinja uses of a variant."""
    spec: Softmax = variant.spec
    arguments = _kernel_arguments(spec)
    summary = _SUMMARIES[spec.algorithm].format(
        rows=variant.config.block_m, columns=variant.config.block_n
    )
    tensors = ["x", "out", "mask"] if spec.mask else ["x", "out"]
    return {
        **_steps(variant),
        "title": _title(spec),
        "summary": textwrap.wrap(f"{summary} All sums are float32.", width=99),
        "logits": "s" if spec.scaled else "x",
        "tl_out_dtype": f"tl.{DTYPE_WORDS[spec.out_dtype]}",
        "torch_out_dtype": f"torch.{DTYPE_WORDS[spec.out_dtype]}",
        "out_dtype_words": DTYPE_WORDS[spec.out_dtype],
        "block_c": row_block(spec),
        "exponent_scale": "scale * LOG2_E" if spec.scaled else "LOG2_E",
        "exponent_factor": "(scale * LOG2_E)" if spec.scaled else "LOG2_E",
        "natural": "{} * scale" if spec.scaled else "{}",
        "by_parts": spec.split,
        "masked": spec.mask,
        "scaled": spec.scaled,
        "tensors": tensors,
        "strides_of_tensors": ", ".join(f"{tensor}_strides" for tensor in tensors),
        "empty": "-inf" if spec.log else "0",
        "launches": [
            *([_launch(f"{variant.name}_states", arguments)] if spec.split else []),
            _launch(variant.name, arguments),
        ],
        "state_parameters": [
            _declared(name)
            for name in arguments
            if name not in ("y_ptr", "lse_ptr") and "_y_" not in name
        ],
        "kernel_parameters": [_declared(name) for name in arguments],
        "kernel_arguments": {_declared(name): value for name, value in arguments.items()},
        **_signature(spec.dtype, spec.out_dtype, arguments),
    }


def topk(variant: Variant) -> dict[str, Any]:
    """What templates/triton/softmax_topk.py.jinja uses of a variant."""
    spec: SoftmaxTopk = variant.spec
    arguments = {f"{name}_ptr": name for name in ("x", "values", "indices", "probabilities")}
    arguments |= _strides(["x"])
    arguments |= {"inner": "inner", "columns": "columns // unit", "k": "k", "unit": "unit"}
    return {
        **_steps(variant),
        "title": f"The {spec.k} largest of each row and their softmax, {DTYPE_WORDS[spec.dtype]}",
        "summary": textwrap.wrap(f"{_TOPK_SUMMARY} All sums are float32.", width=99),
        "block_k": next_power_of_2(spec.k),
        "exponent_scale": "LOG2_E",
        "exponent_factor": "LOG2_E",
        "by_parts": False,
        "masked": False,
        "scaled": False,
        "kernel_parameters": [_declared(name) for name in arguments],
        "kernel_arguments": {_declared(name): value for name, value in arguments.items()},
        "launches": [_launch(variant.name, arguments)],
        **_signature(spec.dtype, spec.dtype, arguments),
    }


def _steps(variant: Variant) -> dict[str, Any]:
    spec, config = variant.spec, variant.config
    across = lanes(spec, config)
    return {
        "lanes": across,
        "vectors": config.block_n // across,
        "tl_dtype": f"tl.{DTYPE_WORDS[spec.dtype]}",
    }


def _strides(tensors: list[str]) -> dict[str, str]:
    """Each tensor's strides from one row to another, in two dimensions, and between columns."""
    strides = {}
    for tensor in tensors:
        name = "y" if tensor == "out" else tensor
        strides[f"stride_{name}_outer"] = f"{tensor}_strides[0] // unit"
        strides[f"stride_{name}_inner"] = f"{tensor}_strides[1] // unit"
        strides[f"stride_{name}_column"] = f"{tensor}.stride(-1)"
    return strides


def _kernel_arguments(spec: Softmax) -> dict[str, str]:
    """The kernel's parameters, in order, and what the launcher passes for each."""
    arguments = {"x_ptr": "x", "y_ptr": "out"}
    if spec.lse:
        arguments["lse_ptr"] = "lse"
    if spec.mask:
        arguments["mask_ptr"] = "mask"
    if spec.split:
        arguments |= {"m_ptr": "m", "l_ptr": "l"}
    arguments |= _strides(["x", "out", *(["mask"] if spec.mask else [])])
    if spec.single:
        arguments["num_rows"] = "num_rows"
    arguments |= {"inner": "inner", "columns": "columns // unit"}
    if spec.split:
        arguments["parts"] = "parts"
    if spec.scaled:
        arguments |= {"sign": "sign", "scale": "scale"}
    return arguments | {"unit": "unit"}


def _declared(name: str) -> str:
    return f"{name}: tl.constexpr" if name == "unit" else name


def _ones(arguments: Iterable[str]) -> dict[str, Any]:
    """What is 1 in the usual call: rows one after the other, columns side by side."""
    return {name: 1 for name in arguments if name in ("inner", "unit") or "_column" in name}


def _launch(function: str, arguments: Iterable[str]) -> Launch:
    return Launch(function, {**_ones(arguments), "PDL": False}, early=True)


def _signature(dtype: str, out_dtype: str, arguments: Iterable[str]) -> dict[str, Any]:
    """The types of a kernel's parameters in the usual call."""
    pointers = {
        "x_ptr": f"*{dtype}",
        "y_ptr": f"*{out_dtype}",
        "mask_ptr": "*u1",
        "values_ptr": f"*{dtype}",
        "indices_ptr": "*i64",
    }
    types = {}
    for name in arguments:
        usual = "fp32" if name in ("sign", "scale") else "i32"
        types[name] = pointers.get(name, "*fp32") if name.endswith("_ptr") else usual
    return {
        "unspecialised": [name for name in arguments if name in ("num_rows", "parts", "k")],
        "kernel_signature": types,
        "multiples_of_16": ["columns"],
    }


def _title(spec: Softmax) -> str:
    extras = [name for name in ("mask", "lse") if getattr(spec, name)]
    words = "Log-softmax" if spec.log else "Softmax"
    words += " of scaled rows" if spec.scaled else " of rows"
    if extras:
        words += f" with {' and '.join(extras)}"
    words += f", {spec.algorithm}, {DTYPE_WORDS[spec.dtype]}"
    return words if spec.out_dtype == spec.dtype else f"{words} to {DTYPE_WORDS[spec.out_dtype]}"
