"""The reference's options as the mask and score functions of torch's flex_attention, in float64."""

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

HEADS_FIRST = (0, 2, 1, 3)


def flex(
    q,
    k,
    v,
    *,
    causal=False,
    causal_offset=None,
    window_size=(-1, -1),
    sm_scale=None,
    softcap=None,
    sinks=None,
    alibi_slopes=None,
    bias=None,
    mask=None,
):
    """(o, lse) as numpy arrays in the reference's layout.

    flex_attention knows no sink, so one more key takes its place: its value is 0, every query sees
    it, and its score is the sink.
    """
    batch, seqlen_q, heads_q, _ = q.shape
    seqlen_kv, heads_kv = k.shape[1:3]
    q, k, v = (torch.from_numpy(x).permute(HEADS_FIRST) for x in (q, k, v))
    scores = (batch, heads_q, seqlen_q, seqlen_kv)
    offset = as_tensor(seqlen_kv - seqlen_q if causal_offset is None else causal_offset, (batch,))
    slopes, sinks = as_tensor(alibi_slopes, (batch, heads_q)), as_tensor(sinks, (heads_q,))
    bias, mask = as_tensor(bias, scores), as_tensor(mask, scores)
    left, right = window_size
    if sinks is not None:
        k, v = with_one_more_key(k, dim=2), with_one_more_key(v, dim=2)
        bias, mask = with_one_more_key(bias, dim=3), with_one_more_key(mask, dim=3)

    def mask_mod(b, h, i, j):
        seen = j >= 0
        if mask is not None:
            seen = mask[b, h, i, j]
        if causal or window_size != (-1, -1):
            position = i + offset[b]
        if causal:
            seen = seen & (j <= position)
        if left != -1:
            seen = seen & (position - j <= left)
        if right != -1:
            seen = seen & (j - position <= right)
        return seen if sinks is None else seen | (j == seqlen_kv)

    def score_mod(score, b, h, i, j):
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        if slopes is not None:
            score = score - slopes[b, h] * (i + offset[b] - j).abs()
        if bias is not None:
            score = score + bias[b, h, i, j]
        return score if sinks is None else torch.where(j == seqlen_kv, sinks[h], score)

    masked = mask is not None or causal or window_size != (-1, -1)
    block_mask = (
        create_block_mask(mask_mod, batch, heads_q, seqlen_q, k.shape[2], device="cpu")
        if masked
        else None
    )
    o, aux = flex_attention(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=block_mask,
        scale=sm_scale,
        enable_gqa=heads_q != heads_kv,
        return_aux=AuxRequest(lse=True),
    )
    return o.permute(HEADS_FIRST).numpy(), aux.lse.numpy()


def as_tensor(x, shape):
    return None if x is None else torch.from_numpy(np.broadcast_to(x, shape).copy())


def with_one_more_key(x, dim):
    """`x` with a 0, or False, after the last key."""
    return None if x is None else torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim)
