# Generated from templates/triton/attention_fwd.py.jinja; do not edit. Regenerate: attngen build
#   attention_fwd_d128_bf16_causal_mask_m64_n32_w8_s3
"""Causal attention forward with mask, head dim 128, bfloat16.

    s = (q . k) * sm_scale,    lse = log(sum(exp(s))),    o = sum(exp(s - lse) * v)

One program computes 64 query rows of one head, 32 keys at a time, and keeps for each row the
largest score so far (m), the sum of exp(s - m) (l) and the same sum weighted by v (acc), rescaled
when m grows: Milakov and Gimelshein, arXiv 1805.02867, section 3; Dao, arXiv 2307.08691, section
3.1. All sums are float32.
"""

import math

import torch
import triton
import triton.language as tl

HEAD_DIM = tl.constexpr(128)
HEAD_DIM_V = tl.constexpr(128)
BLOCK_D = tl.constexpr(128)
BLOCK_DV = tl.constexpr(128)
BLOCK_M = tl.constexpr(64)
BLOCK_N = tl.constexpr(32)
NUM_WARPS = 8
NUM_STAGES = 3
DTYPE = torch.bfloat16
HEADS_TOGETHER = 8
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_step(s, m, l, acc, scale_log2):
    """Fold a block of scores into the rows' state (m, l, acc); also returns p = exp(s - m).

    scale_log2 takes a difference of scores to base 2. The difference comes first, so that scores
    of any size keep its full precision and p never exceeds 1.
    """
    m_new = tl.maximum(m, tl.max(s, 1))
    # Rows that have seen no key yet: any finite reference keeps -inf - m from being NaN.
    reference = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.math.exp2((s - reference[:, None]) * scale_log2)
    alpha = tl.math.exp2((m - reference) * scale_log2)
    l = l * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None]
    return p, m_new, l, acc


@triton.jit(
    do_not_specialize=[
        "seqlen_q",
        "seqlen_kv",
        "causal_offset",
        "heads_q",
        "group_size",
        "num_heads",
        "heads_together",
    ]
)
def attention_fwd_d128_bf16_causal_mask_m64_n32_w8_s3(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    mask_ptr,
    causal_offset_ptr,
    stride_qb,
    stride_qm,
    stride_qh,
    stride_kb,
    stride_kn,
    stride_kh,
    stride_vb,
    stride_vn,
    stride_vh,
    stride_ob,
    stride_om,
    stride_oh,
    stride_mask_b,
    stride_mask_h,
    stride_mask_m,
    stride_mask_n,
    seqlen_q,
    seqlen_kv,
    causal_offset,
    heads_q,
    group_size,
    num_heads,
    heads_together,
    sm_scale,
):
    """Compute the o and lse of BLOCK_M query rows of one head."""
    # torch.compile passes a float in 64 bits.
    sm_scale = tl.cast(sm_scale, tl.float32)
    # Which tile: up to heads_together heads vary fastest, so that they share k and v in the
    # cache; then the blocks of queries, the longest rows first; then the groups of heads.
    num_tiles_m = tl.cdiv(seqlen_q, BLOCK_M)
    group = tl.program_id(0) // (num_tiles_m * heads_together)
    within = tl.program_id(0) % (num_tiles_m * heads_together)
    heads_here = tl.minimum(num_heads - group * heads_together, heads_together)
    start_m = (num_tiles_m - 1 - within // heads_here) * BLOCK_M
    batch_head = group * heads_together + within % heads_here
    batch = (batch_head // heads_q).to(tl.int64)
    head = (batch_head % heads_q).to(tl.int64)
    head_kv = head // group_size

    # Addresses, in 64 bits: a row times its stride may exceed 32.
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    offs_dv = tl.arange(0, BLOCK_DV)
    rows_m = offs_m.to(tl.int64)[:, None]
    rows_n = tl.arange(0, BLOCK_N).to(tl.int64)[:, None]
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows_m * stride_qm + offs_d[None, :]
    o_ptrs = o_ptr + batch * stride_ob + head * stride_oh + rows_m * stride_om + offs_dv[None, :]
    k_ptrs = k_ptr + batch * stride_kb + head_kv * stride_kh + rows_n * stride_kn + offs_d[None, :]
    v_ptrs = v_ptr + batch * stride_vb + head_kv * stride_vh + rows_n * stride_vn + offs_dv[None, :]
    mask_rows = mask_ptr + batch * stride_mask_b + head * stride_mask_h
    mask_rows += rows_m * stride_mask_m
    if causal_offset_ptr is not None:
        # Beyond any length an offset changes nothing, and this one leaves room for sums in int32.
        causal_offset = tl.load(causal_offset_ptr + batch)
        causal_offset = tl.minimum(tl.maximum(causal_offset, -(2**29)), 2**29).to(tl.int32)

    # Query row i stands at position i + causal_offset among the keys.
    position = offs_m + causal_offset
    last_key = tl.minimum(position, seqlen_kv - 1)
    last_row = tl.minimum(start_m + BLOCK_M, seqlen_q) - 1
    # No row of the tile sees a key from kv_end on; every row sees all keys before full_end.
    # No row of the sequence sees a key from seen_end on: such rows of k and v are never read.
    kv_end = tl.maximum(tl.minimum(last_row + causal_offset + 1, seqlen_kv), 0)
    full_end = tl.maximum(tl.minimum(start_m + causal_offset + 1, seqlen_kv), 0)
    seen_end = tl.minimum(seqlen_q + causal_offset, seqlen_kv)
    full_end = full_end // BLOCK_N * BLOCK_N
    # How far k and v of the block at hand lie behind those of the first keys, in elements.
    step_k = tl.cast(stride_kn, tl.int64) * BLOCK_N
    step_v = tl.cast(stride_vn, tl.int64) * BLOCK_N
    offset_k = tl.cast(0, tl.int64)
    offset_v = tl.cast(0, tl.int64)

    q = tl.load(q_ptrs, mask=(offs_m < seqlen_q)[:, None], other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)

    # Blocks that every row of the tile sees whole.
    for start_n in tl.range(0, full_end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptrs + offset_k)
        v = tl.load(v_ptrs + offset_v)
        s = tl.dot(q, k.T)
        mask = tl.load(
            mask_rows + offs_n.to(tl.int64)[None, :] * stride_mask_n,
            mask=(offs_m < seqlen_q)[:, None],
            other=0,
        )
        s = tl.where(mask != 0, s, float("-inf"))
        p, m, l, acc = online_softmax_step(s, m, l, acc, sm_scale * LOG2_E)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        offset_k += step_k
        offset_v += step_v

    # Blocks that the diagonal or the end of the keys cuts.
    for start_n in tl.range(full_end, kv_end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        seen = offs_n < seen_end
        k = tl.load(k_ptrs + offset_k, mask=seen[:, None], other=0.0)
        v = tl.load(v_ptrs + offset_v, mask=seen[:, None], other=0.0)
        s = tl.dot(q, k.T)
        mask = tl.load(
            mask_rows + offs_n.to(tl.int64)[None, :] * stride_mask_n,
            mask=(offs_m < seqlen_q)[:, None] & (offs_n < seqlen_kv)[None, :],
            other=0,
        )
        s = tl.where(mask != 0, s, float("-inf"))
        visible = offs_n[None, :] <= last_key[:, None]
        s = tl.where(visible, s, float("-inf"))
        p, m, l, acc = online_softmax_step(s, m, l, acc, sm_scale * LOG2_E)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        offset_k += step_k
        offset_v += step_v

    # However large the scores, lse is finite; only where no key was seen it is not.
    m = tl.where(m == float("-inf"), m, tl.minimum(tl.maximum(m * sm_scale, -3.4e38), 3.4e38))
    # One division, at the end. A row that saw no key is the empty state: o = 0, lse = -inf.
    is_empty = l == 0.0
    o = acc * (1.0 / tl.where(is_empty, 1.0, l))[:, None]
    lse = tl.where(is_empty, float("-inf"), m + tl.log(l))
    lse_ptrs = lse_ptr + batch_head.to(tl.int64) * seqlen_q + offs_m
    tl.store(lse_ptrs, lse, mask=offs_m < seqlen_q)
    tl.store(o_ptrs, o.to(tl.bfloat16), mask=(offs_m < seqlen_q)[:, None])


def attention_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: torch.Tensor,
    causal_offset: int | torch.Tensor | None = None,
    sm_scale: float | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention forward with mask, head dim 128, bfloat16.

    There is no backward. Tensors may have any strides, so long as the last dimension is
    contiguous. The launch does not synchronise and is safe inside CUDA-graph capture.

    Args:
        q: [batch, seqlen_q, heads_q, 128], bfloat16.
        k: [batch, seqlen_kv, heads_kv, 128], bfloat16; heads_q is a
            multiple of heads_kv, and query head h reads head h // (heads_q // heads_kv).
        v: [batch, seqlen_kv, heads_kv, 128], bfloat16.
        mask: bool, True where a key is visible; broadcasts to [batch, heads_q, seqlen_q,
            seqlen_kv]. v must be finite.
        causal_offset: query i stands at key i + causal_offset: an int, or int32 or int64 [batch];
            seqlen_kv - seqlen_q where it is not given (bottom-right).
        sm_scale: any finite factor of the scores; 1 / sqrt(128) where it is not given.
        out: takes o, with any strides and a contiguous last dimension; allocated if not given.

    Returns:
        o: [batch, seqlen_q, heads_q, 128], bfloat16.
        lse: [batch, heads_q, seqlen_q], float32, natural logarithm.
        A row that sees no key has o = 0 and lse = -inf.

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape, strides or value.
    """
    for name, tensor, columns in (("q", q, HEAD_DIM), ("k", k, HEAD_DIM), ("v", v, HEAD_DIM_V)):
        _check_rows(name, tensor, columns.value, q)
    batch, seqlen_q, heads_q, _ = q.shape
    _, seqlen_kv, heads_kv, _ = k.shape
    _check_shape("k", k, (batch, seqlen_kv, heads_kv, HEAD_DIM.value))
    _check_shape("v", v, (batch, seqlen_kv, heads_kv, HEAD_DIM_V.value))
    if heads_kv == 0 or heads_q % heads_kv:
        raise ValueError(f"heads_q: got {heads_q}, allowed is a multiple of heads_kv ({heads_kv})")
    if max(seqlen_q, seqlen_kv) >= 2**28:
        raise ValueError(f"seqlen: got {seqlen_q} and {seqlen_kv}, allowed is less than 2**28")
    if sm_scale is None:
        sm_scale = 1.0 / math.sqrt(HEAD_DIM.value)
    elif isinstance(sm_scale, bool) or not isinstance(sm_scale, (int, float)):
        raise TypeError(f"sm_scale: got {type(sm_scale).__name__}, allowed is a number")
    elif not math.isfinite(sm_scale):
        raise ValueError(f"sm_scale: got {sm_scale}, allowed is any finite number")
    offsets = None
    if causal_offset is None:
        causal_offset = seqlen_kv - seqlen_q
    elif isinstance(causal_offset, torch.Tensor):
        if causal_offset.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"causal_offset: got {causal_offset.dtype}, allowed are int32, int64")
        _check_device("causal_offset", causal_offset, q)
        _check_shape("causal_offset", causal_offset, (batch,))
        offsets, causal_offset = causal_offset.contiguous(), 0
    elif isinstance(causal_offset, bool) or not isinstance(causal_offset, int):
        raise TypeError(f"causal_offset: got {causal_offset!r}, allowed is an int or a tensor")
    else:
        causal_offset = min(max(causal_offset, -(2**29)), 2**29)
    _check_device("mask", mask, q)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask: got {mask.dtype}, allowed is torch.bool")
    mask = _expand("mask", mask, (batch, heads_q, seqlen_q, seqlen_kv))
    if out is None:
        out = q.new_empty((batch, seqlen_q, heads_q, HEAD_DIM_V.value))
    else:
        _check_rows("out", out, HEAD_DIM_V.value, q)
        _check_shape("out", out, (batch, seqlen_q, heads_q, HEAD_DIM_V.value))
        if 0 in out.stride() and any(
            n > 1 and stride == 0 for n, stride in zip(out.shape, out.stride(), strict=True)
        ):
            raise ValueError(f"out: got strides {tuple(out.stride())}, allowed are none of 0")
    lse = q.new_empty((batch, heads_q, seqlen_q), dtype=torch.float32)
    num_heads = batch * heads_q
    num_tiles = num_heads * triton.cdiv(seqlen_q, BLOCK_M.value)
    if num_tiles == 0:
        return out, lse
    # The kernel's scale is positive, so that the largest product is the largest score. The sign
    # goes into q; a scale below the smallest normal float32 counts as 0: q of zeros, scale 1.
    if sm_scale < 2.0**-126:
        q = -q if sm_scale <= -(2.0**-126) else q * 0.0
        sm_scale = -sm_scale if sm_scale <= -(2.0**-126) else 1.0
    with torch.cuda.device(q.get_device()):
        _KERNEL[(num_tiles,)](
            q,
            k,
            v,
            out,
            lse,
            mask,
            offsets,
            q.stride(0),
            q.stride(1),
            q.stride(2),
            k.stride(0),
            k.stride(1),
            k.stride(2),
            v.stride(0),
            v.stride(1),
            v.stride(2),
            out.stride(0),
            out.stride(1),
            out.stride(2),
            mask.stride(0),
            mask.stride(1),
            mask.stride(2),
            mask.stride(3),
            seqlen_q,
            seqlen_kv,
            causal_offset,
            heads_q,
            heads_q // heads_kv,
            num_heads,
            min(HEADS_TOGETHER, num_heads),
            min(sm_scale, 2.3e38),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
            enable_fp_fusion=True,
        )
    return out, lse


_KERNEL = attention_fwd_d128_bf16_causal_mask_m64_n32_w8_s3
_INTERPRETED = not isinstance(online_softmax_step, triton.JITFunction)


def _check_rows(name: str, tensor: torch.Tensor, columns: int, q: torch.Tensor) -> None:
    """Hold a tensor to four dimensions, `columns` contiguous columns, the dtype, q's device."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype != DTYPE:
        raise TypeError(f"{name}: got {tensor.dtype}, allowed is {DTYPE}")
    _check_device(name, tensor, q)
    if tensor.dim() != 4 or tensor.shape[3] != columns:
        raise ValueError(
            f"{name}: got shape {tuple(tensor.shape)}, allowed is [batch, seqlen, heads, {columns}]"
        )
    if tensor.stride(3) != 1:
        raise ValueError(f"{name}: got last-dimension stride {tensor.stride(3)}, allowed is 1")


def _check_device(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    """Hold a tensor to q's device, and that to one that the kernel runs on."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.device != q.device:
        raise TypeError(f"{name}: got device {tensor.device}, allowed is that of q ({q.device})")
    if not (tensor.is_cuda or _INTERPRETED):
        raise TypeError(
            f"{name}: got device {tensor.device}, allowed is a GPU"
            " (or the CPU, with TRITON_INTERPRET=1 set before triton is imported)"
        )


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is {shape}")


def _expand(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Broadcast a tensor to a shape, by strides alone."""
    try:
        return tensor.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name}: got shape {tuple(tensor.shape)}, allowed is what broadcasts to {shape}"
        ) from None
