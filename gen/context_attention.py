"""The names that the attention templates of every family use."""

from __future__ import annotations

from typing import Any

from attngen.config import padded
from attngen.spec_attention import Attention, AttentionPaged, AttentionVarlen

_OP_WORDS = {
    "attention_fwd": "attention forward",
    "attention_decode": "attention decode",
    "attention_varlen": "varlen attention",
    "attention_paged": "paged attention",
}
DTYPE_WORDS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def names(spec: Attention) -> dict[str, Any]:
    """What attention templates use of a spec, whatever the tile."""
    return {
        "title": _title(spec),
        "packed": isinstance(spec, AttentionVarlen),
        "paged": isinstance(spec, AttentionPaged),
        "block_d": padded(spec.head_dim),
        "pads_d": padded(spec.head_dim) != spec.head_dim,
        "empty_lse": "sink" if spec.sinks else "-inf",
    }


def _title(spec: Attention) -> str:
    extras = [name for name in spec.switched_on if name not in ("causal", "paged")]
    if len(extras) > 3:
        extras[2:] = [f"{len(extras) - 2} more"]
    head_dims = f"head dim {spec.head_dim}"
    if spec.head_dim_v != spec.head_dim:
        head_dims += f" (v {spec.head_dim_v})"
    layout = "paged " if "paged" in spec.switched_on else ""
    words = [f"{'causal ' if spec.causal else ''}{layout}{_OP_WORDS[spec.op]}"]
    if extras:
        words.append(f"with {', '.join(extras)}")
    title = f"{' '.join(words)}, {head_dims}, {DTYPE_WORDS[spec.dtype]}"
    return title[0].upper() + title[1:]
