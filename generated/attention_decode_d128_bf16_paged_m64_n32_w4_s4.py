# Generated from templates/triton/attention_decode.py.jinja; do not edit. Regenerate: attngen build
#   attention_decode_d128_bf16_paged_m64_n32_w4_s4
"""Paged attention decode, head dim 128, bfloat16.

    s = (q . k) * sm_scale,    lse = log(sum(exp(s))),    o = sum(exp(s - lse) * v)

One program takes 64 rows, which are queries times the query heads that share a KV head, over one
split of the keys, 32 at a time, and leaves their state (m, l, acc) in float32; a second kernel
merges the splits' states (FlashAttention, arXiv 2205.14135, section 3.1; Flash-Decoding). The
recurrence is that of Milakov and Gimelshein, arXiv 1805.02867, section 3. All sums are float32.
"""

import functools
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
BLOCK_S = tl.constexpr(32)
NUM_WARPS = 4
NUM_STAGES = 4
# Which have 96 KB of keys and values in flight: what the memory of a large GPU wants.
PROGRAMS_A_PROCESSOR = 6
DTYPE = torch.bfloat16
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


@triton.jit
def finish(m, l, acc, scale):
    """Give o and lse of rows whose keys are all in (m, l, acc); scale takes m to natural units."""
    # However large the scores, lse is finite; only where no key was seen it is not.
    m = tl.where(m == float("-inf"), m, tl.minimum(tl.maximum(m * scale, -3.4e38), 3.4e38))
    # One division, at the end. Rows that saw no key are the empty state: o = 0, lse = -inf.
    is_empty = l == 0.0
    o = acc * (1.0 / tl.where(is_empty, 1.0, l))[:, None]
    return o, tl.where(is_empty, float("-inf"), m + tl.log(l))


@triton.jit(
    do_not_specialize=[
        "seqlen_q",
        "seqlen_kv",
        "heads_kv",
        "group_size",
        "num_splits",
        "split_size",
    ]
)
def attention_decode_d128_bf16_paged_m64_n32_w4_s4(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    m_ptr,
    l_ptr,
    seqlens_kv_ptr,
    block_table_ptr,
    stride_qb,
    stride_qm,
    stride_qh,
    stride_kb,
    stride_kn,
    stride_kh,
    stride_vb,
    stride_vn,
    stride_vh,
    stride_os,
    stride_ob,
    stride_om,
    stride_oh,
    stride_ls,
    stride_tb,
    stride_tp,
    seqlen_q,
    seqlen_kv,
    heads_kv,
    group_size,
    num_splits,
    split_size,
    sm_scale,
    PAGE_SIZE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute the state of BLOCK_M rows, queries times heads of a group, over one split's keys."""
    if PDL:
        # The kernel that merges the splits may be launched; it waits until all of this is done.
        tl.extra.cuda.gdc_launch_dependents()
    # torch.compile passes a float in 64 bits.
    sm_scale = tl.cast(sm_scale, tl.float32)
    # Which keys: KV heads vary fastest, then the tiles of rows, then the splits, then sequences.
    num_tiles_m = tl.cdiv(seqlen_q * group_size, BLOCK_M)
    head_kv = (tl.program_id(0) % heads_kv).to(tl.int64)
    tile = tl.program_id(0) // heads_kv % num_tiles_m
    split = tl.program_id(0) // (heads_kv * num_tiles_m) % num_splits
    batch = (tl.program_id(0) // (heads_kv * num_tiles_m * num_splits)).to(tl.int64)
    if seqlens_kv_ptr is not None:
        own = tl.load(seqlens_kv_ptr + batch)
        seqlen_kv = tl.minimum(tl.maximum(own, 0), seqlen_kv).to(tl.int32)

    # Row r of the group is head r % group_size of query r // group_size. Addresses, in 64 bits: a
    # row times its stride may exceed 32.
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < seqlen_q * group_size
    offs_m = rows // group_size
    head = head_kv * group_size + rows % group_size
    offs_d = tl.arange(0, BLOCK_D)
    offs_dv = tl.arange(0, BLOCK_DV)
    q_rows = q_ptr + batch * stride_qb + offs_m.to(tl.int64) * stride_qm + head * stride_qh
    o_rows = o_ptr + split.to(tl.int64) * stride_os + batch * stride_ob
    o_rows += offs_m.to(tl.int64) * stride_om + head * stride_oh
    k_ptrs = k_ptr + head_kv * stride_kh + offs_d[None, :]
    v_ptrs = v_ptr + head_kv * stride_vh + offs_dv[None, :]
    table = block_table_ptr + batch * stride_tb

    # No query sees a key outside seen_begin to seen_end: such rows of k and v are never read.
    seen_end = seqlen_kv
    whole_end = seqlen_kv
    seen_begin = 0

    # The keys of this split: of a fixed size, or an even share, in whole blocks, of what is seen.
    if split_size > 0:
        kv_begin = split * split_size
        kv_end = tl.minimum(kv_begin + split_size, seen_end)
        kv_begin = tl.maximum(kv_begin, seen_begin)
    else:
        share = tl.cdiv(tl.cdiv(seen_end - seen_begin, num_splits), BLOCK_N) * BLOCK_N
        kv_begin = seen_begin + split * share
        kv_end = tl.minimum(kv_begin + share, seen_end)
    # Every query sees all keys of the blocks from full_begin to full_end.
    full_end = tl.maximum(tl.minimum(whole_end, kv_end) - kv_begin, 0) // BLOCK_N * BLOCK_N
    full_end += kv_begin

    q = tl.load(q_rows[:, None] + offs_d[None, :], mask=is_row[:, None], other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)

    # Blocks that every query sees whole.
    for start_n in tl.range(kv_begin, full_end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        # Unsigned, a division by a power of 2 is one shift; the remainder without another division.
        entry = (offs_n.to(tl.uint32) // PAGE_SIZE).to(tl.int32)
        slot = (offs_n - entry * PAGE_SIZE).to(tl.int64)
        entries = table + entry.to(tl.int64) * stride_tp
        page = tl.load(entries).to(tl.int64)
        k_at = page * stride_kb + slot * stride_kn
        k_block = k_ptrs + k_at[:, None]
        k = tl.load(k_block)
        v_at = page * stride_vb + slot * stride_vn
        v_block = v_ptrs + v_at[:, None]
        v = tl.load(v_block)
        s = tl.dot(q, k.T)
        p, m, l, acc = online_softmax_step(s, m, l, acc, sm_scale * LOG2_E)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)

    # Blocks that the diagonal, the end of the keys or the end of the split cuts.
    for start_n in tl.range(full_end, kv_end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        seen = (offs_n >= kv_begin) & (offs_n < kv_end)
        # Unsigned, a division by a power of 2 is one shift; the remainder without another division.
        entry = (offs_n.to(tl.uint32) // PAGE_SIZE).to(tl.int32)
        slot = (offs_n - entry * PAGE_SIZE).to(tl.int64)
        entries = table + entry.to(tl.int64) * stride_tp
        page = tl.load(entries, mask=seen, other=0).to(tl.int64)
        k_at = page * stride_kb + slot * stride_kn
        k_block = k_ptrs + k_at[:, None]
        k = tl.load(k_block, mask=seen[:, None], other=0.0)
        v_at = page * stride_vb + slot * stride_vn
        v_block = v_ptrs + v_at[:, None]
        v = tl.load(v_block, mask=seen[:, None], other=0.0)
        s = tl.dot(q, k.T)
        s = tl.where(seen[None, :], s, float("-inf"))
        p, m, l, acc = online_softmax_step(s, m, l, acc, sm_scale * LOG2_E)
        acc = tl.dot(p.to(tl.bfloat16), v, acc)

    stores = (batch * heads_kv * group_size + head) * seqlen_q + offs_m
    o_ptrs = o_rows[:, None] + offs_dv[None, :]
    o_mask = is_row[:, None]
    if num_splits == 1:
        o, lse = finish(m, l, acc, sm_scale)
        tl.store(m_ptr + stores, lse, mask=is_row)
        tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=o_mask)
    else:
        # The state as it is: a logarithm of l beside a large m would lose l.
        states = split.to(tl.int64) * stride_ls + stores
        tl.store(m_ptr + states, m, mask=is_row)
        tl.store(l_ptr + states, l, mask=is_row)
        tl.store(o_ptrs, acc.to(o_ptr.dtype.element_ty), mask=o_mask)


@triton.jit(do_not_specialize=["num_splits", "seqlen_q", "heads_q"])
def merge_splits(
    acc_split_ptr,
    m_split_ptr,
    l_split_ptr,
    o_ptr,
    lse_ptr,
    stride_os,
    stride_ls,
    stride_ob,
    stride_om,
    stride_oh,
    num_splits,
    seqlen_q,
    heads_q,
    sm_scale,
    PDL: tl.constexpr,
):
    """Merge the states of a row's splits, BLOCK_S at a time, as blocks of keys are merged."""
    # torch.compile passes a float in 64 bits.
    sm_scale = tl.cast(sm_scale, tl.float32)
    row = tl.program_id(0).to(tl.int64)
    token = row % seqlen_q
    head = row // seqlen_q % heads_q
    batch = row // seqlen_q // heads_q
    offs_s = tl.arange(0, BLOCK_S)
    offs_dv = tl.arange(0, BLOCK_DV)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    acc = tl.zeros([1, BLOCK_DV], tl.float32)
    if PDL:
        # It was launched while the kernel before it still ran: wait for all that wrote.
        tl.extra.cuda.gdc_wait()
    for start_s in tl.range(0, num_splits, BLOCK_S):
        splits = start_s + offs_s
        is_split = splits < num_splits
        states = splits.to(tl.int64) * stride_ls + row
        acc_rows = splits.to(tl.int64) * stride_os + row * HEAD_DIM_V
        # All loads at once: no state waits for another to say how much it weighs.
        m_i = tl.load(m_split_ptr + states, mask=is_split, other=float("-inf"))
        l_i = tl.load(l_split_ptr + states, mask=is_split, other=0.0)
        acc_i = tl.load(
            acc_split_ptr + acc_rows[:, None] + offs_dv[None, :],
            mask=is_split[:, None],
            other=0.0,
        )
        m_new = tl.maximum(m, tl.max(m_i, 0))
        # Where every state is empty: any finite reference keeps -inf - m from being NaN.
        reference = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.math.exp2((m - reference) * (sm_scale * LOG2_E))
        alpha_i = tl.math.exp2((m_i - reference) * (sm_scale * LOG2_E))
        l = l * alpha + tl.sum(l_i * alpha_i, 0)
        acc = acc * alpha[:, None] + tl.sum(acc_i * alpha_i[:, None], 0)[None, :]
        m = m_new
    o, lse = finish(m, l, acc, sm_scale)
    tl.store(lse_ptr + row + tl.arange(0, 1), lse)
    o_ptrs = o_ptr + batch * stride_ob + token * stride_om + head * stride_oh + offs_dv[None, :]
    tl.store(o_ptrs, o.to(tl.bfloat16))


def attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    block_table: torch.Tensor,
    seqlens_kv: torch.Tensor,
    max_seqlen_kv: int | None = None,
    num_splits: int | None = None,
    split_size: int | None = None,
    sm_scale: float | None = None,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Paged attention decode, head dim 128, bfloat16.

    There is no backward. Tensors may have any strides, so long as the last dimension is
    contiguous. The launch does not synchronise and is safe inside CUDA-graph capture.

    Args:
        q: [batch, seqlen_q, heads_q, 128], bfloat16.
        k_cache: [num_pages, page_size, heads_kv, 128], bfloat16; heads_q is a
            multiple of heads_kv, and query head h reads head h // (heads_q // heads_kv).
        v_cache: [num_pages, page_size, heads_kv, 128], bfloat16.
        block_table: int32 or int64 [batch, max_pages]: key j of a sequence is slot j % page_size
            of page block_table[b, j // page_size]. Entries past its last key are not read.
        seqlens_kv: int32 or int64 [batch], the keys of each sequence, at most max_pages *
            page_size; a longer one is cut there, a negative one is 0.
        max_seqlen_kv: at least the keys of any sequence, so that fewer splits are launched than
            the table has room for; a longer sequence is cut there.
        num_splits: into how many even shares the keys of a sequence are cut, each for a program of
            its own; `choose_num_splits` where it and split_size are None or 0.
        split_size: keys a split, for all lengths: the bits of a row then depend on its own
            sequence alone, not on the batch. Not together with num_splits.
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
    k, v = k_cache, v_cache
    _check_rows("q", q, HEAD_DIM.value, q)
    _check_rows("k_cache", k, HEAD_DIM.value, q)
    _check_rows("v_cache", v, HEAD_DIM_V.value, q)
    batch, seqlen_q, heads_q, _ = q.shape
    num_pages, page_size, heads_kv, _ = k.shape
    _check_shape("v_cache", v, (num_pages, page_size, heads_kv, HEAD_DIM_V.value))
    if page_size == 0:
        raise ValueError("k_cache: got page size 0, allowed is 1 and up")
    _check_integers("block_table", block_table, q, "[batch, max_pages]")
    if block_table.shape[0] != batch:
        raise ValueError(
            f"block_table: got shape {tuple(block_table.shape)}, allowed is ({batch}, max_pages)"
        )
    _check_integers("seqlens_kv", seqlens_kv, q, "[batch]")
    seqlen_kv = block_table.shape[1] * page_size
    if max_seqlen_kv is not None:
        if isinstance(max_seqlen_kv, bool) or not isinstance(max_seqlen_kv, int):
            raise TypeError(f"max_seqlen_kv: got {max_seqlen_kv!r}, allowed is an int or None")
        if not 0 <= max_seqlen_kv <= seqlen_kv:
            raise ValueError(
                f"max_seqlen_kv: got {max_seqlen_kv}, allowed is 0 to the table's {seqlen_kv} keys"
            )
        seqlen_kv = max_seqlen_kv
    _check_shape("seqlens_kv", seqlens_kv, (batch,))
    seqlens_kv = seqlens_kv.contiguous()
    if heads_kv == 0 or heads_q % heads_kv:
        raise ValueError(f"heads_q: got {heads_q}, allowed is a multiple of heads_kv ({heads_kv})")
    if max(seqlen_q, seqlen_kv) >= 2**28:
        raise ValueError(f"seqlen: got {seqlen_q} and {seqlen_kv}, allowed is less than 2**28")
    if seqlen_q * (heads_q // heads_kv) >= 2**30:
        raise ValueError(f"seqlen_q: got {seqlen_q} for {heads_q} heads, allowed are 2**30 rows")
    if sm_scale is None:
        sm_scale = 1.0 / math.sqrt(HEAD_DIM.value)
    elif isinstance(sm_scale, bool) or not isinstance(sm_scale, (int, float)):
        raise TypeError(f"sm_scale: got {type(sm_scale).__name__}, allowed is a number")
    elif not math.isfinite(sm_scale):
        raise ValueError(f"sm_scale: got {sm_scale}, allowed is any finite number")
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
    if lse.numel() == 0:
        return out, lse
    num_tiles = batch * heads_kv * triton.cdiv(seqlen_q * (heads_q // heads_kv), BLOCK_M.value)
    num_splits, split_size = _splits(num_splits, split_size, num_tiles, seqlen_kv, q)
    if num_splits * num_tiles >= 2**31:
        raise ValueError(f"num_splits: got {num_splits}, allowed is less than {2**31 // num_tiles}")
    # The kernel's scale is positive, so that the largest product is the largest score. The sign
    # goes into q; a scale below the smallest normal float32 counts as 0: q of zeros, scale 1.
    if sm_scale < 2.0**-126:
        q = -q if sm_scale <= -(2.0**-126) else q * 0.0
        sm_scale = -sm_scale if sm_scale <= -(2.0**-126) else 1.0
    if num_splits == 1:
        o_split, m_split, l_split = out[None], lse[None], lse[None]
    else:
        # Rows of a split as in lse: [num_splits, batch, heads_q, seqlen_q].
        states = (num_splits, batch, heads_q, seqlen_q)
        o_split = q.new_empty((*states, HEAD_DIM_V.value), dtype=torch.float32).transpose(2, 3)
        m_split, l_split = q.new_empty((2, *states), dtype=torch.float32)
    # A graph that torch compiles asks no device while it is traced.
    pdl = not torch.compiler.is_compiling() and _has_pdl(q.device)
    with torch.cuda.device(q.get_device()):
        _KERNEL[(num_tiles * num_splits,)](
            q,
            k,
            v,
            o_split,
            m_split,
            l_split,
            seqlens_kv,
            block_table,
            q.stride(0),
            q.stride(1),
            q.stride(2),
            k.stride(0),
            k.stride(1),
            k.stride(2),
            v.stride(0),
            v.stride(1),
            v.stride(2),
            o_split.stride(0),
            o_split.stride(1),
            o_split.stride(2),
            o_split.stride(3),
            m_split.stride(0),
            block_table.stride(0),
            block_table.stride(1),
            seqlen_q,
            seqlen_kv,
            heads_kv,
            heads_q // heads_kv,
            num_splits,
            split_size,
            min(sm_scale, 2.3e38),
            page_size,
            PDL=pdl,
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
            enable_fp_fusion=True,
        )
        if num_splits > 1:
            merge_splits[(lse.numel(),)](
                o_split,
                m_split,
                l_split,
                out,
                lse,
                o_split.stride(0),
                m_split.stride(0),
                out.stride(0),
                out.stride(1),
                out.stride(2),
                num_splits,
                seqlen_q,
                heads_q,
                min(sm_scale, 2.3e38),
                PDL=pdl,
                **({"launch_pdl": True} if pdl else {}),
                num_warps=4,
                enable_fp_fusion=True,
            )
    return out, lse


def choose_num_splits(num_tiles: int, seqlen_kv: int, num_processors: int) -> int:
    """Into how many splits to cut the keys, so that every processor has programs to run.

    Args:
        num_tiles: programs without splits: sequences times KV heads times tiles of rows.
        seqlen_kv: the longest sequence's keys.
        num_processors: streaming multiprocessors of the GPU.

    Returns:
        1 where the tiles alone are PROGRAMS_A_PROCESSOR programs for each processor; else the
        fewest splits, of at least four blocks of keys each, whose programs run in waves of so
        many with the last wave nearly full.
    """
    at_once = PROGRAMS_A_PROCESSOR * num_processors
    if num_tiles >= at_once:
        return 1
    most = max(1, min(triton.cdiv(seqlen_kv, 4 * BLOCK_N.value), 256))
    return _fewest_splits(num_tiles, most, at_once)


@functools.lru_cache(maxsize=4096)
def _fewest_splits(num_tiles: int, most: int, at_once: int) -> int:
    """Up to `most` splits whose waves of `at_once` programs are nine tenths as full as any's."""
    programs = [num_tiles * num_splits for num_splits in range(1, most + 1)]
    fullness = [n / (-(-n // at_once) * at_once) for n in programs]
    enough = 0.9 * max(fullness)
    return next(i for i, share in enumerate(fullness, 1) if share >= enough)


@functools.cache
def _has_pdl(device: torch.device) -> bool:
    """Can a kernel be launched while the one before it ends? On NVIDIA's GPUs from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


@functools.cache
def _num_processors(device: torch.device) -> int:
    if device.type == "cpu":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _splits(
    num_splits: int | None, split_size: int | None, num_tiles: int, seqlen_kv: int, q: torch.Tensor
) -> tuple[int, int]:
    """How many splits to launch, and of which size; size 0 is an even share of what is seen."""
    for name, value in (("num_splits", num_splits), ("split_size", split_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name}: got {value!r}, allowed is an int or None")
        if value is not None and not 0 <= value < 2**31:
            raise ValueError(f"{name}: got {value}, allowed is None or 0 and up")
    if split_size:
        if num_splits:
            raise ValueError(f"split_size: got {split_size}, allowed without num_splits alone")
        return max(1, triton.cdiv(seqlen_kv, split_size)), split_size
    if not num_splits:
        num_splits = choose_num_splits(num_tiles, seqlen_kv, _num_processors(q.device))
    # A share is a whole block at least: more splits than blocks would have nothing to do.
    return min(num_splits, max(1, triton.cdiv(seqlen_kv, BLOCK_N.value))), 0


_KERNEL = attention_decode_d128_bf16_paged_m64_n32_w4_s4
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


def _check_integers(name: str, tensor: torch.Tensor, q: torch.Tensor, dimensions: str) -> None:
    """Hold a tensor to int32 or int64, a number of dimensions and q's device."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: got {tensor.dtype}, allowed are int32, int64")
    _check_device(name, tensor, q)
    if tensor.dim() != dimensions.count(",") + 1:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is {dimensions}")
