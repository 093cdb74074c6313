"""The names that the Hopper templates use beside those of every family."""

from __future__ import annotations

import textwrap
from typing import Any

from attngen import context_attention
from attngen.config import padded
from attngen.launch import Launch
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

_PAIR_TYPES = {"fp16": "f16x2", "bf16": "bf16x2"}
_GL_DTYPES = {"fp16": "gl.float16", "bf16": "gl.bfloat16"}
_NUMBER_WORDS = {2: "two", 3: "three"}
_REGISTERS = {2: (168, 240, 24), 3: (128, 160, 24)}
"""By the number of consumer warpgroups: a thread's at launch, in a consumer, in the producer."""


def names(variant: Variant) -> dict[str, Any]:
    """What templates/gluon uses of a variant."""
    spec, config = variant.spec, variant.config
    num_consumers = config.block_m // 64
    registers, consumer_registers, producer_registers = _REGISTERS[num_consumers]
    # O lies over Q where a program's shared memory has no room for both.
    o_over_q = padded(spec.head_dim) > 128
    sizes = _sizes(spec)
    return {
        **context_attention.names(spec),
        "summary": _summary(),
        "gl_dtype": _GL_DTYPES[spec.dtype],
        "pair_type": _PAIR_TYPES[spec.dtype],
        "consumers": list(range(num_consumers)),
        "num_consumers": num_consumers,
        "consumer_words": _NUMBER_WORDS[num_consumers],
        "registers": registers,
        "consumer_registers": consumer_registers,
        "producer_registers": producer_registers,
        "worker_warps": [4] * (num_consumers - 1) + [1],
        "worker_registers": ", ".join(
            ["CONSUMER_REGISTERS"] * (num_consumers - 1) + ["PRODUCER_REGISTERS"]
        ),
        "o_over_q": o_over_q,
        "q_slots": 1 if o_over_q else 2,
        # Rescale O only where a row outgrows its reference: there are twice as many columns.
        "lazy": o_over_q,
        # Three warpgroups that issue products at will get in each other's way.
        "turns": num_consumers == 3,
        "heads_q_index": sizes.index("heads_q"),
        "waves": 2 if spec.causal else 1,
        "switch": "STRADDLE" if spec.causal else "EVEN_N",
        "launches": _launches(variant),
        "kernel_parameters": [*_POINTERS, *sizes, *_COUNTS, "scale_log2"],
        "kernel_signature": _signature(variant),
        "unspecialised": [*sizes, *_COUNTS],
        "plan_arguments": "q, k, v, causal_offset, sm_scale"
        if spec.causal
        else "q, k, v, sm_scale",
        "plan_words": ", offset" if spec.causal else "",
        "positions": spec.causal,
        "offsets_by_sequence": False,
        "interprets": False,
        "bulk_copies": True,
        "v_columns": "HEAD_DIM",
        "expands": False,
    }


_POINTERS = ("q_desc", "k_desc", "v_desc", "o_desc", "lse_ptr", "counter_ptr")
_COUNTS = ("group_size", "num_tiles_m", "heads_together", "num_heads", "num_tiles")


def _sizes(spec: AttentionFwd) -> list[str]:
    offset = ["causal_offset"] if spec.causal else []
    return ["seqlen_q", "seqlen_kv", *offset, "heads_q"]


def _launches(variant: Variant) -> list[Launch]:
    """With the constants that the launcher may choose, the usual ones first."""
    name, usual = ("STRADDLE", False) if variant.spec.causal else ("EVEN_N", True)
    return [Launch(variant.name, {name: value}) for value in (usual, not usual)]


def _signature(variant: Variant) -> dict[str, str]:
    """What Triton calls the type of each kernel parameter."""
    spec, config = variant.spec, variant.config
    rows = {"q": 64, "k": config.block_n, "v": config.block_n, "o": 64}
    types = {
        f"{tensor}_desc": _descriptor(spec.dtype, n, padded(spec.head_dim))
        for tensor, n in rows.items()
    }
    types |= {"lse_ptr": "*fp32", "counter_ptr": "*i32"}
    types |= dict.fromkeys([*_sizes(spec), *_COUNTS], "i32")
    return types | {"scale_log2": "fp32"}


def _descriptor(dtype: str, rows: int, columns: int) -> str:
    """A tensor descriptor whose boxes are rows x columns of one head, without its layout."""
    return f"tensordesc<{dtype}[1, {rows}, 1, {columns}]>"


def _summary() -> list[str]:
    return textwrap.wrap(
        "Each row keeps the largest score so far (m, in base 2), the sum of exp(s - m) (l) and the"
        " same sum weighted by v (acc), rescaled when m grows: Milakov and Gimelshein, arXiv"
        " 1805.02867, section 3; for the schedule see Shah et al., arXiv 2407.08608, section 3. All"
        " sums are float32. Scores times log2(e) have to fit in float32.",
        width=99,
    )
