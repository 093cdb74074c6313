"""The run-time face of varlen and paged attention: sequences of many lengths in one call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attngen.errors import InvalidSpec
from attngen.finder import DTYPES, find
from attngen.runtime import check_softcap, window_of
from attngen.runtime_decode import decode
from attngen.spec_attention import AttentionPaged, AttentionVarlen


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    *,
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
    """Attention within each of `batch` sequences that are packed one after the other.

    The definition is `attngen.reference.attention_varlen`. Nothing is brought to the host: each
    program finds its sequence in cu_seqlens_q.

    Args:
        q: [total_q, heads_q, head_dim], float16, bfloat16 or float32.
        k: [total_kv, heads_kv, head_dim], like q; heads_q is a multiple of heads_kv.
        v: [total_kv, heads_kv, head_dim_v], like q.
        cu_seqlens_q: int32 or int64 [batch + 1], rising from 0: sequence b has the rows of q from
            cu_seqlens_q[b] up to cu_seqlens_q[b + 1]. Sequences may have no rows.
        cu_seqlens_kv: int32 or int64 [batch + 1], the same for the rows of k and v. Of either,
            bounds below 0 or past the rows that there are count as those; where bounds fall, a
            sequence is empty.
        max_seqlen_q: at least the queries of any sequence; the grid does not depend on it.
        max_seqlen_kv: at least the keys of any sequence.
        causal: query i sees key j when j <= i + causal_offset.
        causal_offset: an int, or int32 or int64 [batch]; each sequence's seqlen_kv - seqlen_q
            where it is not given.
        window_size: (left, right), as in `attention`.
        sm_scale: as in `attention`.
        softcap: as in `attention`.
        sinks: floating [heads_q], as in `attention`.
        alibi_slopes: float32 [heads_q] or [batch, heads_q].
        bias: not offered here: InvalidSpec.
        mask: not offered here: InvalidSpec.
        return_lse: also return the log-sum-exp.
        out: takes o, where it is given.

    Returns:
        o: [total_q, heads_q, head_dim_v], like q; 0 in rows that see no key, and after the last
            sequence.
        lse: with return_lse, [heads_q, total_q] float32, natural logarithm; -inf (or the sink) in
            rows that see no key, -inf after the last sequence.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim, dtype or option.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_rows(name, tensor, "total", "heads", "head_dim")
    switches, options = _options(
        causal, causal_offset, window_size, softcap, alibi_slopes, bias, mask, sinks
    )
    kernel = _kernel(AttentionVarlen, q.device, q.shape[2], v.shape[2], q.dtype, *switches)
    lengths = (cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)
    o, lse = kernel.attention_varlen(q, k, v, *lengths, sm_scale=sm_scale, out=out, **options)
    return (o, lse) if return_lse else o


def attention_paged(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seqlens_kv: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    max_seqlen_q: int = 1,
    max_seqlen_kv: int | None = None,
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
    """Attention of each of `batch` sequences over its keys and values in the pages of a cache.

    The definition is `attngen.reference.attention_paged`. Token t of sequence b lies in slot
    t % page_size of page block_table[b, t // page_size]; slots past a sequence's length, pages that
    no sequence uses and table entries past its last page may hold anything.

    Args:
        q: [total_q, heads_q, head_dim], float16, bfloat16 or float32.
        k_cache: [num_pages, page_size, heads_kv, head_dim], like q, any page size. Views do: of
            pages laid out by heads (HND), of k and v in one buffer.
        v_cache: [num_pages, page_size, heads_kv, head_dim_v], like q, with strides of its own.
        block_table: int32 or int64 [batch, max_pages], rows of any stride.
        seqlens_kv: int32 or int64 [batch], keys of each sequence, at most max_pages * page_size; a
            longer one is cut there, a negative one is 0.
        cu_seqlens_q: int32 or int64 [batch + 1], as in `attention_varlen`; one query each where it
            is not given: a step of decode, by the kernels of `attention_decode`.
        max_seqlen_q: at least the queries of any sequence; the grid does not depend on it.
        max_seqlen_kv: at least the keys of any sequence; where given, the table has to have room
            for them, and a longer sequence is cut there.
        num_splits: as in `attention_decode`; with cu_seqlens_q None, 0 or 1, for the keys of a row
            are then not split.
        split_size: likewise; with cu_seqlens_q None or 0.
        causal: as in `attention_varlen`, and so are the options from here on.
        causal_offset: an int, or int32 or int64 [batch].
        window_size: (left, right).
        sm_scale: any finite factor of q . k.
        softcap: from 2**-126 to less than 2**128.
        sinks: floating [heads_q].
        alibi_slopes: float32 [heads_q] or [batch, heads_q].
        bias: not offered here: InvalidSpec.
        mask: not offered here: InvalidSpec.
        return_lse: also return the log-sum-exp.
        out: takes o, where it is given.

    Returns:
        o: as `attention_varlen` does.
        lse: likewise.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim, dtype or option.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    _check_rows("q", q, "total_q", "heads_q", "head_dim")
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check_rows(name, tensor, "num_pages", "page_size", "heads_kv", "head_dim")
    if cu_seqlens_q is None:
        _check_one_query(max_seqlen_q, bias, mask)
        layout: dict[str, Any] = {"block_table": block_table, "seqlens_kv": seqlens_kv}
        layout |= {"num_splits": num_splits, "split_size": split_size}
        layout |= {"max_seqlen_kv": max_seqlen_kv, "out": None if out is None else out[:, None]}
        attn: dict[str, Any] = {
            "causal": causal,
            "causal_offset": causal_offset,
            "window_size": window_size,
        }
        attn |= {"sm_scale": sm_scale, "softcap": softcap, "sinks": sinks}
        attn |= {"alibi_slopes": alibi_slopes}
        o, lse = decode(q[:, None], k_cache, v_cache, layout, attn)
        o = o[:, 0] if out is None else out
        return (o, lse[..., 0].T) if return_lse else o
    _check_splits("num_splits", num_splits, (None, 0, 1))
    _check_splits("split_size", split_size, (None, 0))
    switches, options = _options(
        causal, causal_offset, window_size, softcap, alibi_slopes, bias, mask, sinks
    )
    columns = q.shape[2], v_cache.shape[3]
    kernel = _kernel(AttentionPaged, q.device, *columns, q.dtype, *switches)
    o, lse = kernel.attention_paged(
        q,
        k_cache,
        v_cache,
        block_table,
        seqlens_kv,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        sm_scale=sm_scale,
        out=out,
        **options,
    )
    return (o, lse) if return_lse else o


def _check_rows(name: str, tensor: torch.Tensor, *dimensions: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dim() != len(dimensions):
        allowed = f"[{', '.join(dimensions)}]"
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is {allowed}")


def _check_one_query(max_seqlen_q: int, bias: object, mask: object) -> None:
    """Hold a call without cu_seqlens_q to one query a sequence, and to what decode offers."""
    if max_seqlen_q != 1:
        raise ValueError(f"max_seqlen_q: got {max_seqlen_q}, allowed without cu_seqlens_q is 1")
    for name, value in (("bias", bias), ("mask", mask)):
        if value is not None:
            raise InvalidSpec(f"{name}: got a tensor, allowed with attention_paged is None")


def _check_splits(name: str, value: int | None, allowed: tuple[int | None, ...]) -> None:
    """Refuse a number of splits, or a size, that only kernels which merge could do."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{name}: got {value!r}, allowed is an int or None")
    if value is not None and value < 0:
        raise ValueError(f"{name}: got {value}, allowed is None or 0 and up")
    if value not in allowed:
        words = ", ".join(map(str, allowed))
        raise InvalidSpec(
            f"{name}: got {value}, allowed with cu_seqlens_q is {words}: the keys of one query a"
            " sequence can be split, those of more are not"
        )


def _options(
    causal: bool,
    causal_offset: int | torch.Tensor | None,
    window_size: Sequence[int],
    softcap: float | None,
    alibi_slopes: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> tuple[tuple[bool, ...], dict[str, Any]]:
    """Which features a call needs, in the order of a spec, and the launcher's options for them."""
    check_softcap(softcap)
    window = window_of(window_size)
    features: dict[str, Any] = {
        "window_size": window if window != (-1, -1) else None,
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
        "bias": bias,
        "mask": mask,
        "sinks": sinks,
    }
    options = {name: value for name, value in features.items() if value is not None}
    if causal or "window_size" in options or alibi_slopes is not None:
        options["causal_offset"] = causal_offset
    return (causal, *(value is not None for value in features.values())), options


@lru_cache(maxsize=1024)
def _kernel(
    op: type[AttentionVarlen],
    device: torch.device,
    head_dim: int,
    head_dim_v: int,
    dtype: torch.dtype,
    *switches: bool,
) -> ModuleType:
    """The module of the built kernel for a spec, its preferred tile first.

    Of tuned ones the same for all shapes: a row's bits do not depend on its batch mates.
    """
    if dtype not in DTYPES:
        allowed = ", ".join(str(d) for d in DTYPES)
        raise InvalidSpec(f"dtype: got {dtype}, allowed are {allowed}")
    features = {f.name: on for f, on in zip(op.features, switches, strict=True)}
    spec = op(head_dim=head_dim, head_dim_v=head_dim_v, dtype=DTYPES[dtype], **features)
    return find(spec, device=device)
