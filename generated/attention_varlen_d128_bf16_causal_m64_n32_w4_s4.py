# Generated from templates/triton/attention_fwd.py.jinja; do not edit. Regenerate: attngen build
#   attention_varlen_d128_bf16_causal_m64_n32_w4_s4
"""Causal varlen attention, head dim 128, bfloat16.

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
NUM_WARPS = 4
NUM_STAGES = 4
DTYPE = torch.bfloat16
HEADS_TOGETHER = 8
LOG2_E = tl.constexpr(1.4426950408889634)
BOTTOM_RIGHT = tl.constexpr(2**30)


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


@triton.jit
def find_sequence(tile, cu_seqlens_q_ptr, num_sequences):
    """Find the sequence of a tile and the first of that sequence's tiles.

    Tiles of sequence b begin at number cu_seqlens_q[b] // BLOCK_M + b. That leaves each at least
    as many as it needs, and at most one more, whatever the lengths: the host need not know them.
    """
    first = 0
    last = num_sequences
    while first < last:
        middle = (first + last + 1) // 2
        begins = tl.load(cu_seqlens_q_ptr + middle) // BLOCK_M + middle <= tile
        first = tl.where(begins, middle, first)
        last = tl.where(begins, last, middle - 1)
    return first, tl.load(cu_seqlens_q_ptr + first) // BLOCK_M + first


@triton.jit(
    do_not_specialize=[
        "total_q",
        "total_kv",
        "num_sequences",
        "causal_offset",
        "heads_q",
        "group_size",
        "heads_together",
    ]
)
def attention_varlen_d128_bf16_causal_m64_n32_w4_s4(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    cu_seqlens_q_ptr,
    cu_seqlens_kv_ptr,
    causal_offset_ptr,
    stride_qm,
    stride_qh,
    stride_kn,
    stride_kh,
    stride_vn,
    stride_vh,
    stride_om,
    stride_oh,
    total_q,
    total_kv,
    num_sequences,
    causal_offset,
    heads_q,
    group_size,
    heads_together,
    sm_scale,
):
    """Compute the o and lse of BLOCK_M query rows of one head."""
    # torch.compile passes a float in 64 bits.
    sm_scale = tl.cast(sm_scale, tl.float32)
    # Which tile: up to heads_together heads vary fastest, so that they share k and v in the
    # cache; then the blocks of queries, the last rows first; then the groups of heads.
    num_tiles_m = total_q // BLOCK_M + num_sequences + 1
    group = tl.program_id(0) // (num_tiles_m * heads_together)
    within = tl.program_id(0) % (num_tiles_m * heads_together)
    heads_here = tl.minimum(heads_q - group * heads_together, heads_together)
    head = (group * heads_together + within % heads_here).to(tl.int64)
    head_kv = head // group_size
    tile = num_tiles_m - 1 - within // heads_here
    # Rows after the last sequence are one more, which has no keys and none of its own options.
    batch, first_tile = find_sequence(tile, cu_seqlens_q_ptr, num_sequences)
    batch = tl.cast(batch, tl.int64)
    is_sequence = batch < num_sequences
    # Whatever the lengths, which no launcher saw, no row outside the tensors is read or written.
    first_q = tl.load(cu_seqlens_q_ptr + batch)
    first_q = tl.minimum(tl.maximum(first_q, 0), total_q).to(tl.int64)
    end_q = tl.load(cu_seqlens_q_ptr + batch + 1, mask=is_sequence, other=total_q)
    end_q = tl.minimum(tl.maximum(end_q, first_q), total_q)
    seqlen_q = (end_q - first_q).to(tl.int32)
    own_tile = tl.minimum(tl.maximum(tile - first_tile, 0), tl.cdiv(total_q, BLOCK_M))
    start_m = own_tile.to(tl.int32) * BLOCK_M
    if start_m >= seqlen_q:
        return
    first_kv = tl.load(cu_seqlens_kv_ptr + batch, mask=is_sequence, other=0)
    first_kv = tl.minimum(tl.maximum(first_kv, 0), total_kv).to(tl.int64)
    end_kv = tl.load(cu_seqlens_kv_ptr + batch + 1, mask=is_sequence, other=0)
    end_kv = tl.minimum(tl.maximum(end_kv, first_kv), total_kv)
    seqlen_kv = (end_kv - first_kv).to(tl.int32)

    # Addresses, in 64 bits: a row times its stride may exceed 32.
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    offs_dv = tl.arange(0, BLOCK_DV)
    rows_m = (first_q + offs_m)[:, None]
    q_ptrs = q_ptr + head * stride_qh + rows_m * stride_qm + offs_d[None, :]
    o_ptrs = o_ptr + head * stride_oh + rows_m * stride_om + offs_dv[None, :]
    rows_n = (first_kv + tl.arange(0, BLOCK_N))[:, None]
    k_ptrs = k_ptr + head_kv * stride_kh + rows_n * stride_kn + offs_d[None, :]
    v_ptrs = v_ptr + head_kv * stride_vh + rows_n * stride_vn + offs_dv[None, :]
    if causal_offset == BOTTOM_RIGHT:
        causal_offset = seqlen_kv - seqlen_q
    if causal_offset_ptr is not None:
        # Beyond any length an offset changes nothing, and this one leaves room for sums in int32.
        causal_offset = tl.load(causal_offset_ptr + batch, mask=is_sequence, other=0)
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
    for _ in tl.range(0, full_end, BLOCK_N):
        k = tl.load(k_ptrs + offset_k)
        v = tl.load(v_ptrs + offset_v)
        s = tl.dot(q, k.T)
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
    lse_ptrs = lse_ptr + head * total_q + first_q + offs_m
    tl.store(lse_ptrs, lse, mask=offs_m < seqlen_q)
    tl.store(o_ptrs, o.to(tl.bfloat16), mask=(offs_m < seqlen_q)[:, None])


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    *,
    causal_offset: int | torch.Tensor | None = None,
    sm_scale: float | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal varlen attention, head dim 128, bfloat16.

    There is no backward. Tensors may have any strides, so long as the last dimension is
    contiguous. The launch does not synchronise and is safe inside CUDA-graph capture.

    Args:
        q: [total_q, heads_q, 128], bfloat16: the rows of all sequences, one after the other.
        k: [total_kv, heads_kv, 128], bfloat16; heads_q is a multiple of heads_kv, and
            query head h reads head h // (heads_q // heads_kv).
        v: [total_kv, heads_kv, 128], bfloat16.
        cu_seqlens_q: int32 or int64 [batch + 1], rising from 0: sequence b has the rows of q from
            cu_seqlens_q[b] up to cu_seqlens_q[b + 1]. Rows after the last sequence have o = 0 and
            lse = -inf.
        cu_seqlens_kv: int32 or int64 [batch + 1], the same for the rows of k and v. Of either,
            bounds below 0 or past the rows that there are count as those; where bounds fall, a
            sequence is empty.
        max_seqlen_q: at least the queries of any sequence. No bound is needed here: each program
            finds its sequence by cu_seqlens_q.
        max_seqlen_kv: at least the keys of any sequence.
        causal_offset: query i stands at key i + causal_offset: an int, or int32 or int64 [batch];
            seqlen_kv - seqlen_q where it is not given (bottom-right).
        sm_scale: any finite factor of the scores; 1 / sqrt(128) where it is not given.
        out: takes o, with any strides and a contiguous last dimension; allocated if not given.

    Returns:
        o: [total_q, heads_q, 128], bfloat16.
        lse: [heads_q, total_q], float32, natural logarithm.
        A row that sees no key has o = 0 and lse = -inf.

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape, strides or value.
    """
    _check_rows("q", q, ("total_q", "heads_q"), HEAD_DIM.value, q)
    total_q, heads_q, _ = q.shape
    _check_rows("k", k, ("total_kv", "heads_kv"), HEAD_DIM.value, q)
    _check_rows("v", v, ("total_kv", "heads_kv"), HEAD_DIM_V.value, q)
    total_kv, heads_kv, _ = k.shape
    _check_shape("v", v, (total_kv, heads_kv, HEAD_DIM_V.value))
    (bounds,) = _check_index("cu_seqlens_q", cu_seqlens_q, ("batch + 1",), q)
    batch = bounds - 1
    if batch < 0:
        raise ValueError("cu_seqlens_q: got shape (0,), allowed is [batch + 1]")
    _check_index("cu_seqlens_kv", cu_seqlens_kv, ("batch + 1",), q)
    _check_shape("cu_seqlens_kv", cu_seqlens_kv, (batch + 1,))
    _check_length("max_seqlen_q", max_seqlen_q)
    _check_length("max_seqlen_kv", max_seqlen_kv)
    if heads_kv == 0 or heads_q % heads_kv:
        raise ValueError(f"heads_q: got {heads_q}, allowed is a multiple of heads_kv ({heads_kv})")
    if sm_scale is None:
        sm_scale = 1.0 / math.sqrt(HEAD_DIM.value)
    elif isinstance(sm_scale, bool) or not isinstance(sm_scale, (int, float)):
        raise TypeError(f"sm_scale: got {type(sm_scale).__name__}, allowed is a number")
    elif not math.isfinite(sm_scale):
        raise ValueError(f"sm_scale: got {sm_scale}, allowed is any finite number")
    offsets = None
    if causal_offset is None:
        causal_offset = BOTTOM_RIGHT.value
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
    if out is None:
        out = q.new_empty((total_q, heads_q, HEAD_DIM_V.value))
    else:
        _check_rows("out", out, ("total_q", "heads_q"), HEAD_DIM_V.value, q)
        _check_shape("out", out, (total_q, heads_q, HEAD_DIM_V.value))
        if 0 in out.stride() and any(
            n > 1 and stride == 0 for n, stride in zip(out.shape, out.stride(), strict=True)
        ):
            raise ValueError(f"out: got strides {tuple(out.stride())}, allowed are none of 0")
    lse = q.new_empty((heads_q, total_q), dtype=torch.float32)
    # As many tiles as the sequences need, whatever their lengths; see find_sequence.
    num_tiles = heads_q * (total_q // BLOCK_M.value + batch + 1) if total_q else 0
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
            cu_seqlens_q,
            cu_seqlens_kv,
            offsets,
            q.stride(0),
            q.stride(1),
            k.stride(0),
            k.stride(1),
            v.stride(0),
            v.stride(1),
            out.stride(0),
            out.stride(1),
            total_q,
            total_kv,
            batch,
            causal_offset,
            heads_q,
            heads_q // heads_kv,
            min(HEADS_TOGETHER, heads_q),
            min(sm_scale, 2.3e38),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
            enable_fp_fusion=True,
        )
    return out, lse


_KERNEL = attention_varlen_d128_bf16_causal_m64_n32_w4_s4
_INTERPRETED = not isinstance(online_softmax_step, triton.JITFunction)


def _check_rows(
    name: str, tensor: torch.Tensor, dimensions: tuple[str, ...], columns: int, q: torch.Tensor
) -> None:
    """Hold a tensor to its dimensions, `columns` contiguous columns, the dtype, q's device."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype != DTYPE:
        raise TypeError(f"{name}: got {tensor.dtype}, allowed is {DTYPE}")
    _check_device(name, tensor, q)
    if tensor.dim() != len(dimensions) + 1 or tensor.shape[-1] != columns:
        allowed = ", ".join((*dimensions, str(columns)))
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is [{allowed}]")
    if tensor.stride(-1) != 1:
        raise ValueError(f"{name}: got last-dimension stride {tensor.stride(-1)}, allowed is 1")


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


def _check_index(
    name: str, tensor: torch.Tensor, dimensions: tuple[str, ...], q: torch.Tensor
) -> tuple[int, ...]:
    """Hold a tensor of lengths or pages to its dimensions, integers, q's device; its shape."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: got {tensor.dtype}, allowed are int32, int64")
    _check_device(name, tensor, q)
    if tensor.dim() != len(dimensions):
        raise ValueError(
            f"{name}: got shape {tuple(tensor.shape)}, allowed is [{', '.join(dimensions)}]"
        )
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise ValueError(f"{name}: got last-dimension stride {tensor.stride(-1)}, allowed is 1")
    return tuple(tensor.shape)


def _check_length(name: str, length: int) -> None:
    if isinstance(length, bool) or not isinstance(length, int):
        raise TypeError(f"{name}: got {length!r}, allowed is an int")
    if not 0 <= length < 2**28:
        raise ValueError(f"{name}: got {length}, allowed is from 0 to less than 2**28")
