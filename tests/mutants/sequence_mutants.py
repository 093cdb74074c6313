"""Faults of packed sequences: whose rows, whose keys, whose options, which tile."""

from __future__ import annotations

from mutant import (
    VARLEN,
    VARLEN_ALIBI,
    VARLEN_CAUSAL,
    VARLEN_SINKS,
    Edit,
    plant,
)

SEQUENCES = (
    plant(
        "the lengths of q serve for k and v",
        VARLEN,
        "around a tile",
        "hard lse, hard o",
        Edit("cu_seqlens_kv_ptr + batch", "cu_seqlens_q_ptr + batch", count=2),
    ),
    plant(
        "the first sequence's length serves all",
        VARLEN,
        "around a tile",
        "out of bounds",
        Edit("(end_kv - first_kv).to(tl.int32)", "tl.load(cu_seqlens_kv_ptr + 1)"),
    ),
    plant(
        "keys begin with the first sequence's",
        VARLEN,
        "around a tile",
        "hard lse, hard o",
        Edit("rows_n = (first_kv + tl.arange(0, BLOCK_N))", "rows_n = tl.arange(0, BLOCK_N)"),
    ),
    plant(
        "keys run on to the end of all",
        VARLEN,
        "around a tile",
        "hard lse, hard o",
        Edit("cu_seqlens_kv_ptr + batch + 1,", "cu_seqlens_kv_ptr + num_sequences,"),
    ),
    plant(
        "lse laid out by tokens, packed",
        VARLEN,
        "around a tile",
        "hard lse",
        Edit("head * total_q + first_q + offs_m", "(first_q + offs_m) * heads_q + head"),
    ),
    plant(
        "lse of another head",
        VARLEN,
        "around a tile",
        "hard lse",
        Edit("head * total_q +", "(heads_q - 1 - head) * total_q +"),
    ),
    plant(
        "lse of every sequence begins at 0",
        VARLEN,
        "around a tile",
        "NaN lse",
        Edit("head * total_q + first_q + offs_m", "head * total_q + offs_m"),
    ),
    plant(
        "a sequence has no tile for its last rows",
        VARLEN,
        "around a tile",
        "NaN lse, NaN o",
        Edit(
            "num_tiles_m = total_q // BLOCK_M + num_sequences + 1",
            "num_tiles_m = total_q // BLOCK_M",
        ),
        Edit("(total_q // BLOCK_M.value + batch + 1)", "(total_q // BLOCK_M.value)"),
    ),
    plant(
        "a sequence's first tile goes to the one before",
        VARLEN,
        "around a tile",
        "NaN lse, NaN o",
        Edit("+ middle <= tile", "+ middle < tile"),
    ),
    plant(
        "tiles begin where sequences do",
        VARLEN,
        "one long, many short",
        "NaN lse, NaN o",
        Edit("// BLOCK_M + middle <= tile", "// BLOCK_M <= tile"),
        Edit("// BLOCK_M + first\n", "// BLOCK_M\n"),
    ),
    plant(
        "the last tile of a sequence writes into the next",
        VARLEN_CAUSAL,
        "around a tile",
        "hard o",
        Edit("mask=(offs_m < seqlen_q)[:, None])", "mask=(first_q + offs_m < total_q)[:, None])"),
    ),
    plant(
        "rows after the last sequence are left out",
        VARLEN,
        "rows after the last sequence",
        "NaN lse, NaN o",
        Edit("mask=is_sequence, other=total_q", "mask=is_sequence, other=0"),
    ),
    plant(
        "rows after the last sequence have its keys",
        VARLEN,
        "rows after the last sequence",
        "out of bounds",
        Edit(
            "cu_seqlens_kv_ptr + batch + 1, mask=is_sequence, other=0",
            "cu_seqlens_kv_ptr + batch + 1",
        ),
    ),
    plant(
        "rows after the last sequence have the sink",
        VARLEN_SINKS,
        "rows after the last sequence",
        "NaN lse",
        Edit('tl.load(sink_ptr, mask=is_sequence, other=float("-inf"))', "tl.load(sink_ptr)"),
    ),
    plant(
        "one diagonal for all, from the longest",
        VARLEN_CAUSAL,
        "chunks on a cached prefix, one has none",
        "hard lse, hard o",
        Edit("causal_offset = BOTTOM_RIGHT.value", "causal_offset = max_seqlen_kv - max_seqlen_q"),
    ),
    plant(
        "the diagonal from the top left, packed",
        VARLEN_CAUSAL,
        "chunks on a cached prefix, one has none",
        "hard lse, hard o",
        Edit("causal_offset = seqlen_kv - seqlen_q", "causal_offset = 0"),
    ),
    plant(
        "the first offset serves all sequences",
        VARLEN_CAUSAL,
        "an offset a sequence",
        "NaN lse, hard o",
        Edit("causal_offset_ptr + batch", "causal_offset_ptr"),
    ),
    plant(
        "the first slopes serve all sequences",
        VARLEN_ALIBI,
        "slopes a sequence",
        "hard lse, hard o",
        Edit("alibi_slopes_ptr + batch * stride_alibi_slopes_b", "alibi_slopes_ptr"),
    ),
    plant(
        "rows of packed keys in 32 bits",
        VARLEN,
        "packed keys 2**25 apart",
        "wrong address",
        Edit(
            "(first_kv + tl.arange(0, BLOCK_N))", "(first_kv + tl.arange(0, BLOCK_N)).to(tl.int32)"
        ),
    ),
    plant(
        "rows of packed queries in 32 bits",
        VARLEN,
        "packed queries 2**25 apart",
        "wrong address",
        Edit("(first_q + offs_m)[:, None]", "(first_q + offs_m).to(tl.int32)[:, None]"),
    ),
    plant(
        "packed sequences on the grid's second axis",
        VARLEN,
        "70000 sequences",
        "grid",
        Edit("[(num_tiles,)]", "[(heads_q, num_tiles // heads_q)]"),
    ),
    plant(
        "the rows are counted on the host",
        VARLEN,
        "no length is brought to the host",
        "host sync",
        Edit("batch = bounds - 1", "batch, total_q = bounds - 1, int(cu_seqlens_q[-1])"),
    ),
)
