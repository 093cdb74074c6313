"""The run-time face of the merges: they find a generated kernel and call it."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attngen.errors import InvalidSpec
from attngen.finder import DTYPES, find
from attngen.spec_merge import Merge, MergeState, MergeStates

_SPECS: dict[str, type[Merge]] = {spec.op: spec for spec in (MergeState, MergeStates)}

FP8 = torch.float8_e4m3fn
OUT_DTYPES = {**DTYPES, FP8: "fp8"}
"""The name that a merge's spec has for the dtype of o."""


def merge_state(
    o_a: torch.Tensor,
    lse_a: torch.Tensor,
    o_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    lse_layout: str = "ht",
    out: torch.Tensor | None = None,
    out_lse: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    output_scale: float | torch.Tensor | None = None,
    return_lse: bool = True,
    prefill_tokens_with_context: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Merge two attention states over disjoint sets of keys, by a generated kernel.

    The definition is `attngen.reference.merge_state`. Tensors are on one GPU (or on the CPU under
    TRITON_INTERPRET=1), with any strides, so long as the last dimension of o is contiguous and
    batch dimensions, where there are several, view as one.

    Args:
        o_a: [*batch, tokens, heads, head_dim], float16, bfloat16 or float32.
        lse_a: float32, natural logarithm, in the layout that lse_layout names; -inf or +inf where
            the state is empty, whose o is then ignored, NaN or not.
        o_b: like o_a.
        lse_b: like lse_a.
        lse_layout: "ht" for [*batch, heads, tokens] (FlashAttention, vLLM), "th" for
            [*batch, tokens, heads] (SGLang, FlashInfer).
        out: takes o; exactly o_a or o_b (where its dtype is theirs), or memory of its own.
        out_lse: takes lse; exactly lse_a or lse_b, or memory of its own.
        out_dtype: float16, bfloat16, float32 or float8_e4m3fn; that of out where that is given,
            float8_e4m3fn where output_scale is, else that of o_a.
        output_scale: with float8_e4m3fn, o is divided by it before it is rounded and saturated: a
            number above 0, or a float32 tensor of one element.
        return_lse: False returns o alone.
        prefill_tokens_with_context: only so many tokens (of each sequence) have a state a; the
            others' result is their state b. All of them where it is not given.

    Returns:
        o: like o_a, of out_dtype; 0 where both states are empty.
        lse: unless return_lse is False, like lse_a; -inf where both states are empty. A NaN lse
            gives NaN in both.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim or dtype.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value, or one that overlaps
            another.
    """
    merged: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = two_states(
        o_a,
        lse_a,
        o_b,
        lse_b,
        lse_layout=lse_layout,
        out=out,
        out_lse=out_lse,
        out_dtype=out_dtype,
        output_scale=output_scale,
        return_lse=return_lse,
        prefill_tokens_with_context=prefill_tokens_with_context,
    )
    return merged


def merge_states(
    o: torch.Tensor,
    lse: torch.Tensor,
    *,
    lse_layout: str = "ht",
    indptr: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_lse: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    output_scale: float | torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge n attention states over disjoint sets of keys, by a generated kernel.

    The definition is `attngen.reference.merge_states`. For tensors see `merge_state`.

    Args:
        o: [n, *batch, tokens, heads, head_dim], float16, bfloat16 or float32; n may be 0. With
            indptr [states, heads, head_dim], the states of all tokens one after the other.
        lse: float32, natural logarithm, [n, *batch, heads, tokens] ("ht") or
            [n, *batch, tokens, heads] ("th"); with indptr [heads, states] or [states, heads]. Empty
            states are as in `merge_state`.
        lse_layout: "ht" or "th", of lse and out_lse.
        indptr: int32 or int64 [tokens + 1]: the states of token t are those from indptr[t] up to
            indptr[t + 1], which is not among them.
        out: takes o, in memory of its own.
        out_lse: takes lse, in memory of its own.
        out_dtype: as in `merge_state`.
        output_scale: as in `merge_state`.

    Returns:
        o: [*batch, tokens, heads, head_dim], of out_dtype; 0 where all states are empty.
        lse: float32, natural logarithm, in lse_layout; -inf where all states are empty. A NaN lse
            gives NaN in both.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim or dtype.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value, or one that overlaps
            another.
    """
    merged: tuple[torch.Tensor, torch.Tensor] = many_states(
        o,
        lse,
        indptr=indptr,
        lse_layout=lse_layout,
        out=out,
        out_lse=out_lse,
        out_dtype=out_dtype,
        output_scale=output_scale,
    )
    return merged


def two_states(
    o_a: torch.Tensor,
    lse_a: torch.Tensor,
    o_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    base2: bool = False,
    out_dtype: torch.dtype | None = None,
    output_scale: float | torch.Tensor | None = None,
    return_lse: bool = True,
    **options: Any,
) -> Any:
    """`merge_state`, with lse in the base that the adapters of the peers ask for."""
    kernel = _kernel_for("o_a", o_a, options, out_dtype, output_scale, MergeState.op, base2)
    merged = kernel.merge_state(o_a, lse_a, o_b, lse_b, return_lse=return_lse, **options)
    return merged if return_lse else merged[0]


def many_states(
    o: torch.Tensor,
    lse: torch.Tensor,
    *,
    base2: bool = False,
    indptr: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    output_scale: float | torch.Tensor | None = None,
    return_lse: bool = True,
    **options: Any,
) -> Any:
    """`merge_states`, with lse in the base that the adapters of the peers ask for."""
    ragged = {} if indptr is None else {"indptr": indptr}
    kernel = _kernel_for(
        "o", o, options, out_dtype, output_scale, MergeStates.op, base2, indptr is not None
    )
    merged = kernel.merge_states(o, lse, return_lse=return_lse, **ragged, **options)
    return merged if return_lse else merged[0]


def _kernel_for(
    name: str,
    o: torch.Tensor,
    options: dict[str, Any],
    out_dtype: torch.dtype | None,
    output_scale: float | torch.Tensor | None,
    op: str,
    *features: bool,
) -> ModuleType:
    """The kernel for o and its output, whose scale goes among the options where it takes one."""
    if not isinstance(o, torch.Tensor):
        raise TypeError(f"{name}: got {type(o).__name__}, allowed is a torch.Tensor")
    if o.dim() == 0:
        raise ValueError(f"{name}: got shape (), allowed is [..., tokens, heads, head_dim]")
    if out_dtype is None:
        out = options.get("out")
        default = o.dtype if output_scale is None else FP8
        out_dtype = out.dtype if isinstance(out, torch.Tensor) else default
    if output_scale is not None:
        if out_dtype != FP8:
            raise ValueError(
                f"output_scale: got one with out_dtype {out_dtype}, allowed with {FP8} alone"
            )
        options["output_scale"] = output_scale
    return _kernel(o.device, op, o.shape[-1], o.dtype, out_dtype, *features)


@lru_cache(maxsize=1024)
def _kernel(
    device: torch.device,
    op: str,
    head_dim: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    base2: bool,
    ragged: bool = False,
) -> ModuleType:
    """The module of the kernel for a spec and a GPU, its preferred tile first."""
    for name, got, known in (("dtype", dtype, DTYPES), ("out_dtype", out_dtype, OUT_DTYPES)):
        if got not in known:
            allowed = ", ".join(str(d) for d in known)
            raise InvalidSpec(f"{name}: got {got}, allowed are {allowed}")
    features = {"base2": base2, **({"ragged": True} if ragged else {})}
    if out_dtype != dtype:
        features[f"out_{OUT_DTYPES[out_dtype]}"] = True
    spec = _SPECS[op](head_dim=head_dim, dtype=DTYPES[dtype], **features)
    return find(spec, device=device)
