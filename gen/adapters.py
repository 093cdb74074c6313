"""The merges under the names, signatures and conventions of other libraries.

An engine's author changes one import. What a peer cannot do, such as more than 64 heads, odd head
dims or states that are strided differently, works here; what is wrong raises TypeError or
ValueError. Logarithms are natural, as vLLM, SGLang and FlashAttention have them, but for
FlashInfer's, which are to base 2 and are merged in base 2 by kernels of their own (`base2`).
"""

from __future__ import annotations

from typing import Any

import torch

from attngen.runtime_merge import many_states, two_states


def vllm_merge_attn_states(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
    prefill_tokens_with_context: int | None = None,
    output_scale: torch.Tensor | None = None,
) -> None:
    """`merge_attn_states` of vLLM.

    Args:
        output: [tokens, heads, head_dim], takes o; float8_e4m3fn with output_scale.
        prefix_output: [tokens, heads, head_dim].
        prefix_lse: float32 [heads, tokens], natural logarithm.
        suffix_output: like prefix_output.
        suffix_lse: like prefix_lse.
        output_lse: float32 [heads, tokens], takes lse, where it is wanted.
        prefill_tokens_with_context: only so many tokens have a prefix; all where not given.
        output_scale: float32, one element: o is divided by it.

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_state`.
    """
    two_states(
        prefix_output,
        prefix_lse,
        suffix_output,
        suffix_lse,
        out=output,
        out_lse=output_lse,
        output_scale=output_scale,
        return_lse=output_lse is not None,
        prefill_tokens_with_context=prefill_tokens_with_context,
    )


def sglang_merge_state(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    v_merged: torch.Tensor | None = None,
    s_merged: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`merge_state` and `merge_state_v2` of SGLang.

    Args:
        v_a: [tokens, heads, head_dim].
        s_a: [tokens, heads], natural logarithm; converted to float32.
        v_b: like v_a.
        s_b: like s_a.
        v_merged: takes o, where it is given.
        s_merged: float32, takes lse, where it is given.

    Returns:
        (v_merged, s_merged).

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_state`.
    """
    merged: tuple[torch.Tensor, torch.Tensor] = two_states(
        v_a,
        s_a.to(torch.float32),
        v_b,
        s_b.to(torch.float32),
        lse_layout="th",
        out=v_merged,
        out_lse=s_merged,
    )
    return merged


def flashinfer_merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`merge_state` of FlashInfer.

    Args:
        v_a: [tokens, heads, head_dim].
        s_a: [tokens, heads], logarithm to base 2; converted to float32.
        v_b: like v_a.
        s_b: like s_a.

    Returns:
        (v, s): the shapes of v_a and s_a, s float32 and to base 2.

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_state`.
    """
    s_a, s_b = s_a.to(torch.float32), s_b.to(torch.float32)
    merged: tuple[torch.Tensor, torch.Tensor] = two_states(
        v_a, s_a, v_b, s_b, lse_layout="th", base2=True
    )
    return merged


def flashinfer_merge_states(v: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`merge_states` of FlashInfer.

    Args:
        v: [tokens, states, heads, head_dim].
        s: [tokens, states, heads], logarithm to base 2; converted to float32.

    Returns:
        v: [tokens, heads, head_dim].
        s: float32 [tokens, heads], logarithm to base 2.

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_states`.
    """
    if v.dim() != 4 or s.dim() != 3:
        raise ValueError(
            f"v, s: got shapes {tuple(v.shape)}, {tuple(s.shape)}, allowed are"
            " [tokens, states, heads, head_dim], [tokens, states, heads]"
        )
    lse = s.to(torch.float32).transpose(0, 1)
    merged: tuple[torch.Tensor, torch.Tensor] = many_states(
        v.transpose(0, 1), lse, lse_layout="th", base2=True
    )
    return merged


def flashinfer_merge_state_in_place(
    v: torch.Tensor,
    s: torch.Tensor,
    v_other: torch.Tensor,
    s_other: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> None:
    """`merge_state_in_place` of FlashInfer.

    Args:
        v: [tokens, heads, head_dim]; the merged state takes its place.
        s: float32 [tokens, heads], logarithm to base 2; likewise.
        v_other: like v.
        s_other: [tokens, heads], logarithm to base 2; converted to float32.
        mask: bool [tokens], the tokens to merge; all where it is not given. The others keep their
            state, an empty one in its plain form (0, -inf).

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_state`.
    """
    s_other = s_other.to(torch.float32)
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: got {mask.dtype}, allowed is torch.bool")
        if mask.shape != s.shape[:1]:
            raise ValueError(f"mask: got shape {tuple(mask.shape)}, allowed is {(s.shape[0],)}")
        s_other = torch.where(mask[:, None], s_other, -torch.inf)
    two_states(v, s, v_other, s_other, lse_layout="th", base2=True, out=v, out_lse=s)


def flash_attn_combine(
    out_partial: torch.Tensor,
    lse_partial: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    cu_seqlens: Any = None,
    seqused: Any = None,
    varlen_batch_idx: Any = None,
    return_lse: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`flash_attn_combine` of FlashAttention.

    Args:
        out_partial: [splits, batch, seqlen, heads, head_dim], or [splits, tokens, heads, head_dim].
        lse_partial: float32 [splits, batch, seqlen, heads] or [splits, tokens, heads], natural
            logarithm; usually a transposed view.
        out: takes o, where it is given.
        out_dtype: of o; that of out where that is given, else that of out_partial.
        cu_seqlens: allowed is None; so are seqused and varlen_batch_idx.
        seqused: see cu_seqlens.
        varlen_batch_idx: see cu_seqlens.
        return_lse: is the merged lse wanted?

    Returns:
        out: [batch, seqlen, heads, head_dim] or [tokens, heads, head_dim].
        lse: float32, a transposed view of [batch, heads, seqlen] or [heads, tokens]; None without
            return_lse.

    Raises:
        NotGenerated, InvalidSpec, TypeError, ValueError: as `attngen.merge_states`.
    """
    refused = {"cu_seqlens": cu_seqlens, "seqused": seqused, "varlen_batch_idx": varlen_batch_idx}
    for name, value in refused.items():
        if value is not None:
            raise ValueError(f"{name}: got {type(value).__name__}, allowed is None")
    lse = None
    if return_lse:
        *batch, seqlen, heads, _ = out_partial.shape[1:]
        lse = out_partial.new_empty((*batch, heads, seqlen), dtype=torch.float32).mT
    merged = many_states(
        out_partial,
        lse_partial,
        lse_layout="th",
        out=out,
        out_lse=lse,
        out_dtype=out_dtype,
        return_lse=return_lse,
    )
    return merged if return_lse else (merged, None)
