"""The run-time face of cascades: shared prefixes attended to once, merged with what is private."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from attngen.errors import InvalidSpec, NotGenerated
from attngen.runtime import window_of
from attngen.runtime_decode import decode
from attngen.runtime_layouts import attention_paged, attention_varlen
from attngen.runtime_merge import merge_state, merge_states

Level = tuple[torch.Tensor, ...]

MOST_ROWS = 256
"""Of one KV head: with more, the tiles of `attention_decode` read the keys too often."""


def cascade_attention(
    q: torch.Tensor,
    levels: Sequence[Level],
    *,
    sinks: torch.Tensor | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    sm_scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of each query over the keys of all its levels, level by level, merged.

    The definition is `attngen.reference.cascade_attention`. A query's keys are those that its group
    has at each level, joined, outermost first; keys that a group of many sequences shares are read
    once for all of them. Each level is one call of `attention_varlen` or `attention_paged`, whose
    state (o, lse) has o in the type of q; `merge_states` joins them. A level that few queries of
    one group share is a step of `attention_decode`, which splits its keys over the GPU, where that
    kernel is built. Nothing is brought to the host.

    Args:
        q: [total_q, heads_q, head_dim], float16, bfloat16 or float32.
        levels: outermost first. Each is packed, (k, v, cu_seqlens_q, cu_seqlens_kv), or paged,
            (k_cache, v_cache, block_table, seqlens_kv, cu_seqlens_q), as in those two functions.
            The groups of a level consist of whole groups of the level after it, and every level
            has all rows of q. A group may have no keys.
        sinks: floating [heads_q]; in the denominator once.
        causal: on the last level alone, bottom-right there: a sequence has to have at least as many
            keys at the last level as it has queries, which is not checked.
        window_size: not offered with more than one level: InvalidSpec.
        sm_scale: any finite factor of q . k; 1 / sqrt(head_dim) where it is not given.
        softcap: from 2**-126 to less than 2**128; scores become softcap * tanh(score / softcap).
        alibi_slopes: not offered with more than one level: InvalidSpec.
        max_seqlen_q: at least the queries of any sequence of the last level, where that is known:
            with 1, and as many rows of q as sequences, a last level in pages is a step of decode.
        return_lse: also return the log-sum-exp.
        out: takes o, where it is given.

    Returns:
        o: [total_q, heads_q, head_dim_v], like q; 0 in rows that see no key.
        lse: with return_lse, [heads_q, total_q] float32, natural logarithm.

    Raises:
        NotGenerated: where a kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim, dtype or option.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    _check_levels(levels, window_size, alibi_slopes)
    if max_seqlen_q is not None and (type(max_seqlen_q) is not int or max_seqlen_q < 1):
        raise ValueError(f"max_seqlen_q: got {max_seqlen_q!r}, allowed is an int from 1")
    if len(levels) == 1:
        alone: dict[str, Any] = {"window_size": window_size, "alibi_slopes": alibi_slopes}
        alone |= {"causal": causal, "sinks": sinks, "sm_scale": sm_scale, "softcap": softcap}
        o, lse = _attend(q, levels[0], max_seqlen_q, out=out, **alone)
        return (o, lse) if return_lse else o
    columns = levels[-1][1].shape[-1]
    states = q.new_empty((len(levels), *q.shape[:2], columns))
    lses = q.new_empty((len(levels), q.shape[1], q.shape[0]), dtype=torch.float32)
    every: dict[str, Any] = {"sm_scale": sm_scale, "softcap": softcap}
    for n, level in enumerate(levels[:-1]):
        _, lse = _attend_prefix(q, level, out=states[n], **every)
        lses[n].copy_(lse)
    # The sink is one more state, merged once: with the last level's.
    every |= {"causal": causal, "sinks": sinks}
    _, lse = _attend(q, levels[-1], max_seqlen_q, out=states[-1], **every)
    lses[-1].copy_(lse)
    if len(levels) == 2:
        merged = merge_state(states[0], lses[0], states[1], lses[1], out=out)
        assert isinstance(merged, tuple)
        o, lse = merged
    else:
        o, lse = merge_states(states, lses, out=out)
    return (o, lse) if return_lse else o


def _check_levels(
    levels: Sequence[Level], window_size: Sequence[int], alibi_slopes: torch.Tensor | None
) -> None:
    if not len(levels):
        raise ValueError("levels: got none, allowed are one or more")
    for n, level in enumerate(levels):
        if not isinstance(level, tuple | list) or len(level) not in (4, 5):
            raise ValueError(
                f"levels[{n}]: got {type(level).__name__} of"
                f" {len(level) if isinstance(level, tuple | list) else 'no'} entries, allowed are"
                " (k, v, cu_seqlens_q, cu_seqlens_kv) and (k_cache, v_cache, block_table,"
                " seqlens_kv, cu_seqlens_q)"
            )
    if len(levels) > 1:
        # Sequences that share a level's keys stand at positions of their own among them.
        window = window_of(window_size)
        if window != (-1, -1):
            raise InvalidSpec(f"window_size: got {window}, allowed with several levels is (-1, -1)")
        if alibi_slopes is not None:
            raise InvalidSpec("alibi_slopes: got a tensor, allowed with several levels is None")


def _attend(
    q: torch.Tensor, level: Level, max_seqlen_q: int | None = None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The state of one level."""
    attn: dict[str, Any] = {"return_lse": True, **options}
    if len(level) == 4:
        k, v, cu_q, cu_kv = level
        state = attention_varlen(q, k, v, cu_q, cu_kv, q.shape[0], k.shape[0], **attn)
    else:
        *cache, cu_q = level
        one_each = max_seqlen_q == 1 and cu_q.shape[0] == q.shape[0] + 1
        attn |= {} if one_each else {"cu_seqlens_q": cu_q, "max_seqlen_q": q.shape[0]}
        state = attention_paged(q, *cache, **attn)
    assert isinstance(state, tuple)
    return state


def _attend_prefix(
    q: torch.Tensor, level: Level, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The state of a level that is not the last: no mask, no sink."""
    *cache, cu_q = level if len(level) == 5 else (*level[:2], level[3], level[2])
    if _is_step(q, cache, cu_q):
        with suppress(NotGenerated):
            return _step(q, cache, **options)
    return _attend(q, level, **options)


def _is_step(q: torch.Tensor, cache: Sequence[torch.Tensor], cu_q: torch.Tensor) -> bool:
    """Do all queries share the level's keys, and are they few? Not where an argument is wrong."""
    if not all(isinstance(x, torch.Tensor) for x in (q, *cache, cu_q)):
        return False
    if cu_q.shape != (2,) or q.dim() != 3 or cache[0].dim() < 3 or not cache[0].shape[-2]:
        return False
    return q.shape[0] * q.shape[1] // cache[0].shape[-2] <= MOST_ROWS


def _step(
    q: torch.Tensor, cache: Sequence[torch.Tensor], out: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The state of a level that all queries share: one sequence, every row of q a query of it."""
    layout: dict[str, Any] = {"out": out[None]}
    if len(cache) == 3:
        k, v, cu_kv = cache
        k, v = k[None], v[None]
        layout["seqlens_kv"] = cu_kv[1:]
    else:
        k, v, table, lengths = cache
        layout |= {"block_table": table, "seqlens_kv": lengths}
    o, lse = decode(q[None], k, v, layout, options)
    return o[0], lse[0]
