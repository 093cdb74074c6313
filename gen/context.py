"""Every number and name that a template needs; templates do no arithmetic of their own."""

from __future__ import annotations

from typing import Any

from attngen import (
    context_decode,
    context_gluon,
    context_merge,
    context_softmax,
    context_triton,
)
from attngen.context_attention import DTYPE_WORDS
from attngen.variant import Variant

_TORCH_DTYPES = {"fp16": "torch.float16", "bf16": "torch.bfloat16", "fp32": "torch.float32"}
_NAMES = {
    ("attention_fwd", "triton"): context_triton.names,
    ("attention_fwd", "sm90"): context_gluon.names,
    ("attention_decode", "triton"): context_decode.names,
    ("attention_varlen", "triton"): context_triton.names,
    ("attention_paged", "triton"): context_triton.names,
    ("merge_state", "triton"): context_merge.names,
    ("merge_states", "triton"): context_merge.names,
    ("softmax", "triton"): context_softmax.softmax,
    ("softmax_topk", "triton"): context_softmax.topk,
}


def context(variant: Variant) -> dict[str, Any]:
    """The names that the templates of a variant's operator may use."""
    spec = variant.spec
    return {
        "spec": spec,
        "config": variant.config,
        "name": variant.name,
        "torch_dtype": _TORCH_DTYPES[spec.dtype],
        "dtype_words": DTYPE_WORDS[spec.dtype],
        **_NAMES[spec.op, variant.config.backend](variant),
    }
