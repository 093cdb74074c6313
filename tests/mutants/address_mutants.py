"""Faults of addresses: heads, tiles, strides, padding columns, stores, and offsets of 32 bits."""

from __future__ import annotations

from mutant import CAUSAL, FULL, PADDED, WIDE_V, Edit, plant

HEADS = (
    plant(
        "KV heads are dealt out in turn",
        FULL,
        "one query, many keys",
        "hard lse, hard o",
        Edit("head_kv = head // group_size", "head_kv = head % (heads_q // group_size)"),
    ),
    plant(
        "the group size is the number of KV heads",
        FULL,
        "one query, many keys",
        "out of bounds",
        Edit("heads_q // heads_kv,\n", "heads_kv,\n"),
    ),
    plant(
        "the first KV head serves all",
        FULL,
        "one query, many keys",
        "hard lse, hard o",
        Edit("head_kv = head // group_size", "head_kv = head * 0"),
    ),
    plant(
        "the KV head is the query head",
        FULL,
        "room around the tensors",
        "out of bounds",
        Edit("head_kv = head // group_size", "head_kv = head"),
    ),
    plant(
        "the last group of heads counts as whole",
        FULL,
        "room around 12 heads",
        "out of bounds",
        Edit(
            "heads_here = tl.minimum(num_heads - group * heads_together, heads_together)",
            "heads_here = heads_together",
        ),
    ),
    plant(
        "the heads of a tile start with the group",
        FULL,
        "views of one buffer, groups of 3",
        "NaN lse, NaN o",
        Edit(
            "batch_head = group * heads_together + within % heads_here",
            "batch_head = group + within % heads_here",
        ),
    ),
    plant(
        "batch and head change places",
        FULL,
        "one past a tile",
        "hard lse",
        Edit("batch_head // heads_q", "batch_head % 2"),
        Edit("batch_head % heads_q", "batch_head // 2"),
    ),
    plant(
        "lse laid out by tokens",
        FULL,
        "one past a tile",
        "hard lse",
        Edit(
            "batch_head.to(tl.int64) * seqlen_q + offs_m",
            "batch * seqlen_q * heads_q + offs_m.to(tl.int64) * heads_q + head",
        ),
    ),
    plant(
        "the last tile of queries is left out",
        FULL,
        "one past a tile",
        "NaN lse, NaN o",
        Edit(
            "num_heads * triton.cdiv(seqlen_q, BLOCK_M.value)",
            "num_heads * max(1, seqlen_q // BLOCK_M.value)",
        ),
    ),
)

STRIDES = (
    plant(
        "v's rows have k's stride",
        WIDE_V,
        "whole tiles",
        "hard o",
        Edit("rows_n * stride_vn", "rows_n * stride_kn"),
    ),
    plant(
        "v's blocks have k's stride",
        WIDE_V,
        "whole tiles",
        "hard o",
        Edit("tl.cast(stride_vn, tl.int64)", "tl.cast(stride_kn, tl.int64)"),
    ),
    plant(
        "the launcher passes k's strides for v",
        FULL,
        "v laid out by heads, k by rows",
        "hard o",
        Edit("v.stride(1)", "k.stride(1)"),
        Edit("v.stride(2)", "k.stride(2)"),
    ),
    plant(
        "v's heads have k's stride",
        WIDE_V,
        "one query, many keys",
        "hard o",
        Edit("head_kv * stride_vh", "head_kv * stride_kh"),
    ),
    plant(
        "k's batch has q's stride",
        FULL,
        "one past a tile",
        "out of bounds",
        Edit("batch * stride_kb", "batch * stride_qb"),
    ),
    plant(
        "v's batch is always the first",
        FULL,
        "one past a tile",
        "hard o",
        Edit("batch * stride_vb + ", ""),
    ),
    plant(
        "out has q's strides",
        FULL,
        "out narrower than q",
        "out of bounds",
        Edit("out.stride(1)", "q.stride(1)"),
    ),
    plant(
        "contiguous heads are assumed",
        FULL,
        "views of one buffer, groups of 3",
        "hard lse, hard o",
        Edit("q.stride(1)", "q.shape[2] * q.shape[3]"),
    ),
    plant(
        "out that is given is not written",
        FULL,
        "out is what is returned",
        "given out",
        Edit(
            '        _check_shape("out", out,',
            '        out = torch.empty_like(out)\n        _check_shape("out", out,',
        ),
    ),
)

COLUMNS = (
    plant(
        "padding columns of q are left undefined",
        PADDED,
        "whole tiles",
        "NaN lse, NaN o",
        Edit("(offs_d < HEAD_DIM)[None, :], other=0.0)", "(offs_d < HEAD_DIM)[None, :])"),
    ),
    plant(
        "padding columns of k are read",
        PADDED,
        "whole tiles",
        "out of bounds",
        Edit("            mask=(offs_d < HEAD_DIM)[None, :],\n            other=0.0,\n", ""),
    ),
    plant(
        "padding columns of k are left undefined",
        PADDED,
        "whole tiles",
        "NaN lse, NaN o",
        Edit(
            "            mask=(offs_d < HEAD_DIM)[None, :],\n            other=0.0,\n",
            "            mask=(offs_d < HEAD_DIM)[None, :],\n",
        ),
    ),
    plant(
        "the last columns of k are dropped",
        PADDED,
        "whole tiles",
        "hard lse, hard o",
        Edit("(offs_d < HEAD_DIM)[None, :]", "(offs_d < 16)[None, :]", count=3),
    ),
    plant(
        "the last columns of v are dropped",
        PADDED,
        "whole tiles",
        "NaN o",
        Edit("(offs_dv < HEAD_DIM_V)[None, :]", "(offs_dv < 16)[None, :]", count=3),
    ),
    plant(
        "padding columns are stored",
        PADDED,
        "out with room around it",
        "out of bounds",
        Edit(" & (offs_dv < HEAD_DIM_V)[None, :]\n    tl.store", "\n    tl.store"),
    ),
    plant(
        "padding columns are stored, except in the last rows",
        PADDED,
        "out with room around it",
        "rows around out",
        Edit(
            " & (offs_dv < HEAD_DIM_V)[None, :]\n    tl.store",
            " & ((offs_dv < HEAD_DIM_V)[None, :] | (offs_m < seqlen_q - 1)[:, None])\n    tl.store",
        ),
    ),
    plant(
        "rows past the last query are stored",
        FULL,
        "out with room around it",
        "out of bounds",
        Edit(
            "tl.store(o_ptrs, o.to(tl.float16), mask=(offs_m < seqlen_q)[:, None])",
            "tl.store(o_ptrs, o.to(tl.float16))",
        ),
    ),
    plant(
        "lse past the last query is stored",
        FULL,
        "room around two heads",
        "out of bounds",
        Edit("tl.store(lse_ptrs, lse, mask=offs_m < seqlen_q)", "tl.store(lse_ptrs, lse)"),
    ),
    plant(
        "the default scale counts padding columns",
        PADDED,
        "whole tiles",
        "hard lse, hard o",
        Edit("1.0 / math.sqrt(HEAD_DIM.value)", "1.0 / math.sqrt(BLOCK_D.value)"),
    ),
)

# Tensors whose rows, heads or sequences are so far apart that an offset needs more than 32 bits.
WIDTH = (
    plant(
        "rows of k in 32 bits",
        FULL,
        "rows of k and v 2**25 apart",
        "wrong address",
        Edit("offset_k = tl.cast(0, tl.int64)", "offset_k = 0"),
        Edit("step_k = tl.cast(stride_kn, tl.int64) * BLOCK_N", "step_k = stride_kn * BLOCK_N"),
    ),
    plant(
        "rows of v in 32 bits",
        CAUSAL,
        "rows of k and v 2**25 apart",
        "wrong address",
        Edit("offset_v = tl.cast(0, tl.int64)", "offset_v = 0"),
        Edit("step_v = tl.cast(stride_vn, tl.int64) * BLOCK_N", "step_v = stride_vn * BLOCK_N"),
    ),
    plant(
        "rows of q and out in 32 bits",
        FULL,
        "rows of q and out 2**25 apart",
        "wrong address",
        Edit("rows_m = offs_m.to(tl.int64)[:, None]", "rows_m = offs_m[:, None]"),
    ),
    plant(
        "sequences in 32 bits",
        FULL,
        "sequences 2**30 apart",
        "wrong address",
        Edit("(batch_head // heads_q).to(tl.int64)", "batch_head // heads_q"),
    ),
    plant(
        "heads in 32 bits",
        FULL,
        "heads 2**30 apart",
        "wrong address",
        Edit("(batch_head % heads_q).to(tl.int64)", "batch_head % heads_q"),
    ),
)
