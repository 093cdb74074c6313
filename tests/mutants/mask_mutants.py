"""Faults of masks, of the bounds of the loops over keys, and of the changes of the scores."""

from __future__ import annotations

from mutant import (
    CAUSAL,
    FULL,
    FULL_D64,
    Edit,
    plant,
)

_HIDE = 's = tl.where(visible, s, float("-inf"))'

ENDS = (
    plant(
        "the tail of the keys is not masked",
        FULL,
        "one short of a tile",
        "hard lse, hard o",
        Edit(f"        {_HIDE}\n", ""),
    ),
    plant(
        "the end of the keys is one too early",
        FULL,
        "one short of a tile",
        "hard lse, hard o",
        Edit("last_key = seqlen_kv - 1", "last_key = seqlen_kv - 2"),
    ),
    plant(
        "the end of the keys is one too late",
        FULL,
        "one short of a tile",
        "hard lse, hard o",
        Edit("last_key = seqlen_kv - 1", "last_key = seqlen_kv"),
    ),
    plant(
        "a hidden score is -1e4",
        CAUSAL,
        "more queries than keys",
        "NaN lse, hard o",
        Edit(_HIDE, "s = tl.where(visible, s, -1.0e4)"),
    ),
    plant(
        "a hidden score is -1e4, in the tail",
        FULL_D64,
        "very negative scores",
        "hard lse, hard o",
        Edit(_HIDE, "s = tl.where(visible, s, -1.0e4)"),
    ),
    plant(
        "a hidden score is the smallest float",
        CAUSAL,
        "more queries than keys",
        "NaN lse, hard o",
        Edit(_HIDE, "s = tl.where(visible, s, -3.4028234e38)"),
    ),
    plant(
        "a hidden score is the smallest float16",
        CAUSAL,
        "more queries than keys",
        "NaN lse, hard o",
        Edit(_HIDE, "s = tl.where(visible, s, -65504.0)"),
    ),
    plant(
        "the whole blocks go one too far",
        FULL,
        "one short of a tile",
        "out of bounds",
        Edit("full_end // BLOCK_N * BLOCK_N", "tl.cdiv(full_end, BLOCK_N) * BLOCK_N"),
    ),
    plant(
        "the whole blocks go past the diagonal",
        CAUSAL,
        "whole tiles",
        "hard lse, hard o",
        Edit("full_end // BLOCK_N * BLOCK_N", "(full_end // BLOCK_N + 1) * BLOCK_N"),
    ),
    plant(
        "the last keys that fill no block are dropped",
        FULL,
        "one past a tile",
        "hard lse, hard o",
        Edit("kv_end = seqlen_kv\n", "kv_end = seqlen_kv // BLOCK_N * BLOCK_N\n"),
    ),
    plant(
        "the first block is skipped",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit("tl.range(0, full_end, BLOCK_N)", "tl.range(BLOCK_N, full_end, BLOCK_N)"),
    ),
    plant(
        "v past the end is read",
        FULL,
        "one short of a tile",
        "out of bounds",
        Edit(
            "v = tl.load(v_ptrs + offset_v, mask=seen[:, None], other=0.0)",
            "v = tl.load(v_ptrs + offset_v)",
        ),
    ),
    plant(
        "v past the end is left undefined",
        FULL,
        "one short of a tile",
        "NaN o",
        Edit(
            "v = tl.load(v_ptrs + offset_v, mask=seen[:, None], other=0.0)",
            "v = tl.load(v_ptrs + offset_v, mask=seen[:, None])",
        ),
    ),
    plant(
        "k past the end is read",
        FULL,
        "room around the tensors",
        "out of bounds",
        Edit(
            "k = tl.load(k_ptrs + offset_k, mask=seen[:, None], other=0.0)",
            "k = tl.load(k_ptrs + offset_k)",
        ),
    ),
    plant(
        "q past the end is read",
        FULL,
        "room around the tensors",
        "out of bounds",
        Edit("tl.load(q_ptrs, mask=(offs_m < seqlen_q)[:, None], other=0.0)", "tl.load(q_ptrs)"),
    ),
)

DIAGONAL = (
    plant(
        "the diagonal is hidden",
        CAUSAL,
        "whole tiles",
        "hard lse, hard o",
        Edit("<= last_key[:, None]", "< last_key[:, None]"),
    ),
    plant(
        "the key after the diagonal is seen",
        CAUSAL,
        "whole tiles",
        "hard lse, hard o",
        Edit("tl.minimum(position, seqlen_kv - 1)", "tl.minimum(position + 1, seqlen_kv - 1)"),
    ),
    plant(
        "top-left in the mask alone",
        CAUSAL,
        "one query, many keys",
        "hard lse, hard o",
        Edit("position = offs_m + causal_offset", "position = offs_m"),
    ),
    plant(
        "top-left by default",
        CAUSAL,
        "one query, many keys",
        "hard lse, hard o",
        Edit("causal_offset = seqlen_kv - seqlen_q", "causal_offset = 0"),
    ),
    plant(
        "rows of a tile stop at its first row's keys",
        CAUSAL,
        "more queries than keys",
        "NaN lse, hard o",
        Edit(
            "tl.minimum(last_row + causal_offset + 1, seqlen_kv)",
            "tl.minimum(start_m + causal_offset + 1, seqlen_kv)",
        ),
    ),
    plant(
        "an offset that is given is ignored",
        CAUSAL,
        "top-left",
        "NaN lse, hard o",
        Edit(
            "causal_offset = min(max(causal_offset, -(2**29)), 2**29)",
            "causal_offset = seqlen_kv - seqlen_q",
        ),
    ),
    plant(
        "the first sequence's offset serves all",
        CAUSAL,
        "an offset a sequence",
        "NaN lse, hard o",
        Edit("tl.load(causal_offset_ptr + batch)", "tl.load(causal_offset_ptr)"),
    ),
    plant(
        "an offset a sequence is ignored",
        CAUSAL,
        "an offset a sequence",
        "NaN lse, hard o",
        Edit(
            "offsets, causal_offset = causal_offset.contiguous(), 0",
            "causal_offset = seqlen_kv - seqlen_q",
        ),
    ),
    plant(
        "v that no query sees is read",
        CAUSAL,
        "NaN in the rows of v that no query sees",
        "NaN o",
        Edit("seen_end = tl.minimum(seqlen_q + causal_offset, seqlen_kv)", "seen_end = seqlen_kv"),
    ),
)
