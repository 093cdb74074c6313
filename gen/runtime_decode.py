"""The run-time face of decode: a few queries a sequence, the keys split over the whole GPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attngen.errors import InvalidSpec, NotGenerated
from attngen.finder import DTYPES, find, load
from attngen.runtime import check_number, check_softcap, check_tensors, window_of
from attngen.spec_attention import AttentionDecode
from attngen.tiles_decode import wide_config
from attngen.variant import Variant

FEW_ROWS = 32
"""Queries times heads of a group: more are too many for tiles of 16."""
_DEFAULTS: dict[str, Any] = {
    "causal": False,
    "causal_offset": None,
    "window_size": (-1, -1),
    "sm_scale": None,
    "softcap": None,
    "sinks": None,
    "alibi_slopes": None,
}


def attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    seqlens_kv: torch.Tensor | None = None,
    num_splits: int | None = None,
    split_size: int | None = None,
    causal: bool = False,
    causal_offset: int | torch.Tensor | None = None,
    window_size: Sequence[int] = (-1, -1),
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of a few queries a sequence over a dense cache, by a generated kernel.

    The definition is that of `attngen.reference.attention` on the first seqlens_kv keys of each
    sequence. The keys are cut into splits, each for a program of its own; the states of the splits
    are merged in float32. Tensors are on one GPU (or on the CPU under TRITON_INTERPRET=1), with any
    strides and a contiguous last dimension. There is no backward.

    Args:
        q: [batch, seqlen_q, heads_q, head_dim], float16, bfloat16 or float32.
        k: [batch, seqlen_kv, heads_kv, head_dim], like q; heads_q is a multiple of heads_kv.
        v: [batch, seqlen_kv, heads_kv, head_dim_v], like q.
        seqlens_kv: int32 [batch], the keys of each sequence; all of them where it is not given.
        num_splits: into how many even shares the keys of a sequence are cut; 1 does without a
            merge. Where neither it nor split_size is given, a number that fills the GPU.
        split_size: keys a split: the bits of a row then depend on its own sequence alone.
        causal: query i sees key j when j <= i + causal_offset.
        causal_offset: an int, or int32 or int64 [batch]; a sequence's keys less seqlen_q
            (bottom-right) where it is not given. It also places the queries for window_size and
            alibi_slopes.
        window_size: (left, right): keys seen before and after a query's own position; -1 is
            unbounded.
        sm_scale: any finite factor of q . k; 1 / sqrt(head_dim) where it is not given.
        softcap: from 2**-126 to less than 2**128; scores become softcap * tanh(score / softcap).
        sinks: floating [heads_q]: one more logit in the denominator, without a value.
        alibi_slopes: float32 [heads_q] or [batch, heads_q]; scores lose slope * distance.
        bias: refused; `attention` takes it.
        mask: refused; `attention` takes it.
        return_lse: also return the log-sum-exp.
        out: takes o, where it is given.

    Returns:
        o: [batch, seqlen_q, heads_q, head_dim_v], like q; 0 in rows that see no key.
        lse: with return_lse, [batch, heads_q, seqlen_q] float32, natural logarithm; -inf (or the
            sink) in rows that see no key.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim or dtype, or for bias and mask.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    check_tensors(q=q, k=k, v=v)
    for name, value in (("bias", bias), ("mask", mask)):
        if value is not None:
            raise InvalidSpec(f"{name}: got a tensor, allowed with attention_decode is None")
    o, lse = decode(
        q,
        k,
        v,
        {"seqlens_kv": seqlens_kv, "num_splits": num_splits, "split_size": split_size, "out": out},
        {
            "causal": causal,
            "causal_offset": causal_offset,
            "window_size": window_size,
            "sm_scale": sm_scale,
            "softcap": softcap,
            "sinks": sinks,
            "alibi_slopes": alibi_slopes,
        },
    )
    return (o, lse) if return_lse else o


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layout: dict[str, Any],
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call the kernel for checked q, k and v.

    Args:
        q: [batch, seqlen_q, heads_q, head_dim].
        k: dense, or a cache where `layout` has a block_table.
        v: likewise.
        layout: the launcher's arguments for lengths, table, splits and out.
        options: those of `attention_decode` from causal to alibi_slopes that are given.

    Returns:
        (o, lse), as the launcher does.
    """
    options = _DEFAULTS | options
    causal_offset, softcap = options["causal_offset"], options["softcap"]
    window = window_of(options["window_size"])
    windowed = window != (-1, -1)
    check_number("sm_scale", options["sm_scale"])
    check_softcap(softcap)
    # One query at the end of its keys sees them all, causal or not.
    causal = options["causal"] and not (q.shape[1] == 1 and causal_offset is None)
    given = {name: options[name] for name in ("softcap", "alibi_slopes", "sinks")}
    given = {name: value for name, value in given.items() if value is not None}
    if windowed:
        given["window_size"] = window
    if causal or windowed or "alibi_slopes" in given:
        given["causal_offset"] = causal_offset
    kernel = _kernel(
        q.shape[3],
        v.shape[3],
        q.dtype,
        causal=causal,
        window=windowed,
        softcap="softcap" in given,
        alibi="alibi_slopes" in given,
        sinks="sinks" in given,
        paged="block_table" in layout,
        device=q.device,
        wide=q.shape[1] * (q.shape[2] // max(1, k.shape[2])) > FEW_ROWS,
    )
    state: tuple[torch.Tensor, torch.Tensor] = kernel.attention_decode(
        q, k, v, **layout, sm_scale=options["sm_scale"], **given
    )
    return state


@lru_cache(maxsize=1024)
def _kernel(
    head_dim: int,
    head_dim_v: int,
    dtype: torch.dtype,
    *,
    device: torch.device,
    wide: bool,
    **features: bool,
) -> ModuleType:
    """The module of the kernel for a spec and a GPU: its tile does not depend on the batch.

    For many rows of a KV head it is that of `tiles_decode.wide_config`, where that is built.
    """
    if dtype not in DTYPES:
        raise InvalidSpec(f"dtype: got {dtype}, allowed are {', '.join(map(str, DTYPES))}")
    spec = AttentionDecode(
        head_dim=head_dim, head_dim_v=head_dim_v, dtype=DTYPES[dtype], **features
    )
    if wide:
        with suppress(NotGenerated):
            return load(Variant(spec, wide_config(spec)).name)
    return find(spec, device=device)
