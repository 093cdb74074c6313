"""Attention in three nested loops of Python floats, straight from the definition."""

import math

import numpy as np


def brute_force(
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
    batch, seqlen_q, heads_q, head_dim = q.shape
    _, seqlen_kv, heads_kv, head_dim_v = v.shape
    shape = (batch, heads_q, seqlen_q, seqlen_kv)
    offsets = np.broadcast_to(
        seqlen_kv - seqlen_q if causal_offset is None else causal_offset, (batch,)
    )
    slopes = np.broadcast_to(0.0 if alibi_slopes is None else alibi_slopes, (batch, heads_q))
    bias = np.broadcast_to(0.0 if bias is None else bias, shape)
    mask = np.broadcast_to(True if mask is None else mask, shape)
    scale = 1 / math.sqrt(head_dim) if sm_scale is None else sm_scale
    left, right = window_size
    o = np.zeros((batch, seqlen_q, heads_q, head_dim_v))
    lse = np.full((batch, heads_q, seqlen_q), -math.inf)
    for b in range(batch):
        for h in range(heads_q):
            h_kv = h // (heads_q // heads_kv)
            for i in range(seqlen_q):
                at = i + int(offsets[b])
                logits, values = [], []
                for j in range(seqlen_kv):
                    if causal and j > at:
                        continue
                    if left >= 0 and j < at - left:
                        continue
                    if right >= 0 and j > at + right:
                        continue
                    if not mask[b, h, i, j]:
                        continue
                    s = scale * math.fsum(
                        float(x) * float(y) for x, y in zip(q[b, i, h], k[b, j, h_kv], strict=True)
                    )
                    if softcap is not None:
                        s = softcap * math.tanh(s / softcap)
                    s += -float(slopes[b, h]) * abs(at - j) + float(bias[b, h, i, j])
                    if s == -math.inf:
                        continue
                    logits.append(s)
                    values.append(v[b, j, h_kv].astype(np.float64))
                if sinks is not None and sinks[h] != -math.inf:
                    logits.append(float(sinks[h]))
                    values.append(np.zeros(head_dim_v))
                if not logits:
                    continue
                top = max(logits)
                total = math.fsum(math.exp(s - top) for s in logits)
                lse[b, h, i] = top + math.log(total)
                for s, value in zip(logits, values, strict=True):
                    o[b, i, h] += math.exp(s - top) / total * value
    return o, lse
