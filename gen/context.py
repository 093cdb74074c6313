"""Every number and name that a template needs; templates do no arithmetic of their own."""

from __future__ import annotations

from typing import Any

from attngen import context_gluon, context_triton
from attngen.config import padded
from attngen.spec import AttentionFwd
from attngen.variant import Variant

_TORCH_DTYPES = {"fp16": "torch.float16", "bf16": "torch.bfloat16", "fp32": "torch.float32"}
_DTYPE_WORDS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_FAMILIES = {"triton": context_triton.names, "sm90": context_gluon.names}


def context(variant: Variant) -> dict[str, Any]:
    """The names that the templates of a variant's operator may use."""
    spec = variant.spec
    return {
        "spec": spec,
        "config": variant.config,
        "name": variant.name,
        "title": _title(spec),
        "torch_dtype": _TORCH_DTYPES[spec.dtype],
        "dtype_words": _DTYPE_WORDS[spec.dtype],
        "block_d": padded(spec.head_dim),
        "pads_d": padded(spec.head_dim) != spec.head_dim,
        "empty_lse": "sink" if spec.sinks else "-inf",
        **_FAMILIES[variant.config.backend](variant),
    }


def _title(spec: AttentionFwd) -> str:
    extras = [f.name for f in spec.features if f.name != "causal" and getattr(spec, f.name)]
    if len(extras) > 4:
        extras[3:] = [f"{len(extras) - 3} more"]
    head_dims = f"head dim {spec.head_dim}"
    if spec.head_dim_v != spec.head_dim:
        head_dims += f" (v {spec.head_dim_v})"
    words = ["Causal attention" if spec.causal else "Attention", "forward"]
    if extras:
        words.append(f"with {', '.join(extras)}")
    return f"{' '.join(words)}, {head_dims}, {_DTYPE_WORDS[spec.dtype]}"
