"""How the tensors of each attention operator lie in memory, as the portable kernels are told."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """The kernel's parameters that depend on the operator alone.

    Attributes:
        tensors: by the kernel's letter for each tensor of rows, the launcher's name of it.
        strides: by the kernel's name of a tensor, a letter for each dimension that has a stride.
        indices: the tensors of lengths and pages.
        sizes: by the kernel's name of a size, what the launcher passes.
        heads: the heads that share a grid, in the launcher and the kernel.
    """

    tensors: dict[str, str]
    strides: dict[str, tuple[str, ...]]
    indices: tuple[str, ...] = ()
    sizes: dict[str, str] = field(default_factory=dict)
    heads: str = "heads_q"


LAYOUTS = {
    "attention_fwd": Layout(
        tensors={"q": "q", "k": "k", "v": "v", "o": "out"},
        strides={x: ("b", "m" if x in "qo" else "n", "h") for x in "qkvo"},
        sizes={"seqlen_q": "seqlen_q", "seqlen_kv": "seqlen_kv"},
        heads="num_heads",
    ),
    "attention_varlen": Layout(
        tensors={"q": "q", "k": "k", "v": "v", "o": "out"},
        strides={x: ("m" if x in "qo" else "n", "h") for x in "qkvo"},
        indices=("cu_seqlens_q", "cu_seqlens_kv"),
        sizes={"total_q": "total_q", "total_kv": "total_kv", "num_sequences": "batch"},
    ),
    "attention_paged": Layout(
        tensors={"q": "q", "k": "k_cache", "v": "v_cache", "o": "out"},
        strides={x: ("m", "h") if x in "qo" else ("p", "n", "h") for x in "qkvo"}
        | {"block_table": ("b",)},
        indices=("cu_seqlens_q", "block_table", "seqlens_kv"),
        sizes={"total_q": "total_q", "num_sequences": "batch", "page_size": "page_size"}
        | {"max_seqlen_kv": "max_seqlen_kv"},
    ),
}
