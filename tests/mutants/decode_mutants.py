"""Faults of decode: which keys a split has, how its rows are packed, where pages lie."""

from __future__ import annotations

from mutant import DECODE, DECODE_CAUSAL, DECODE_PAGED, DECODE_WINDOW, Edit, plant

SPLITS = (
    plant(
        "every split has the first one's keys",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit("kv_begin = seen_begin + split * share", "kv_begin = seen_begin + 0 * split"),
    ),
    plant(
        "a split ends where the keys do",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit("kv_end = tl.minimum(kv_begin + share, seen_end)", "kv_end = seen_end"),
    ),
    plant(
        "a fixed split goes one key too far",
        DECODE,
        "splits that cut blocks",
        "hard lse, hard o",
        Edit("kv_begin + split_size, seen_end", "kv_begin + split_size + 1, seen_end"),
    ),
    plant(
        "a share of whole blocks is rounded down",
        DECODE,
        "tails",
        "NaN lse, hard o",
        Edit(
            "tl.cdiv(tl.cdiv(seen_end - seen_begin, num_splits), BLOCK_N) * BLOCK_N",
            "tl.cdiv(seen_end - seen_begin, num_splits) // BLOCK_N * BLOCK_N",
        ),
    ),
    plant(
        "the end of a split is not masked",
        DECODE,
        "splits that cut blocks",
        "hard lse, hard o",
        Edit(
            "seen = (offs_n >= kv_begin) & (offs_n < kv_end)",
            "seen = (offs_n >= kv_begin) & (offs_n < seen_end)",
        ),
    ),
    plant(
        "the scores past the end of a split are kept",
        DECODE,
        "tails",
        "hard lse, hard o",
        Edit('        s = tl.where(seen[None, :], s, float("-inf"))\n', ""),
    ),
    plant(
        "the lengths of the sequences are ignored",
        DECODE,
        "tails",
        "NaN lse, NaN o",
        Edit("tl.load(seqlens_kv_ptr + batch)", "seqlen_kv + 0 * tl.load(seqlens_kv_ptr)"),
    ),
    plant(
        "the first sequence's length serves all steps",
        DECODE,
        "a sequence without keys",
        "NaN lse, hard o",
        Edit("tl.load(seqlens_kv_ptr + batch)", "tl.load(seqlens_kv_ptr + 0 * batch)"),
    ),
    plant(
        "a fixed split starts one key after the window",
        DECODE_WINDOW,
        "window (33, 0), {'split_size': 16}",
        "hard lse, hard o",
        Edit("tl.maximum(kv_begin, seen_begin)", "tl.maximum(kv_begin, seen_begin + 1)"),
    ),
    plant(
        "one split's window is cut at its start",
        DECODE_WINDOW,
        "window (19, -1), {'num_splits': 2}",
        "NaN lse, hard o",
        Edit(
            "seen_end - seen_begin, num_splits), BLOCK_N",
            "seen_end - 2 * seen_begin, num_splits), BLOCK_N",
        ),
    ),
)

GROUPS = (
    plant(
        "queries and heads change places in a group",
        DECODE,
        "several queries",
        "NaN lse, NaN o",
        Edit("offs_m = rows // group_size", "offs_m = rows % seqlen_q"),
        Edit("head_kv * group_size + rows % group_size", "head_kv * group_size + rows // seqlen_q"),
        Edit("    stores = (batch", "    offs_m = rows // group_size\n    stores = (batch"),
    ),
    plant(
        "the heads of a group are not next to each other",
        DECODE,
        "whole blocks",
        "hard lse, hard o",
        Edit(
            "head = head_kv * group_size + rows % group_size",
            "head = head_kv + rows % group_size * heads_kv",
        ),
    ),
    plant(
        "rows after the group's last are stored",
        DECODE,
        "whole blocks",
        "out of bounds",
        Edit("is_row = rows < seqlen_q * group_size", "is_row = rows < BLOCK_M + 0 * seqlen_q"),
    ),
    plant(
        "tiles after the first are the first",
        DECODE,
        "rows of three tiles",
        "NaN lse, NaN o",
        Edit("rows = tile * BLOCK_M + tl.arange", "rows = 0 * tile * BLOCK_M + tl.arange"),
    ),
    plant(
        "causal sees a query's place in the group",
        DECODE_CAUSAL,
        "several queries",
        "NaN lse, hard o",
        Edit("position = offs_m + causal_offset", "position = rows + causal_offset"),
    ),
    plant(
        "the offset is that of the longest sequence",
        DECODE_CAUSAL,
        "several queries",
        "NaN lse, hard o",
        Edit(
            "causal_offset += from_end * (seqlen_kv - seqlen_q)",
            "causal_offset += from_end * (tl.load(seqlens_kv_ptr) - seqlen_q)",
        ),
    ),
)

PAGES = (
    plant(
        "a page is looked up once a block",
        DECODE_PAGED,
        "tails",
        "hard lse, hard o",
        Edit(
            "entry = (offs_n.to(tl.uint32)",
            "entry = ((0 * offs_n + start_n).to(tl.uint32)",
            count=2,
        ),
        Edit("(offs_n - entry * PAGE_SIZE)", "(offs_n % PAGE_SIZE)", count=2),
    ),
    plant(
        "the table past the last key is read by a step",
        DECODE_PAGED,
        "splits that cut blocks",
        "out of bounds",
        Edit("tl.load(entries, mask=seen, other=0)", "tl.load(entries)"),
    ),
    plant(
        "rows of the table follow each other",
        DECODE_PAGED,
        "tails",
        "hard lse, hard o",
        Edit(
            "table = block_table_ptr + batch * stride_tb",
            "table = block_table_ptr + batch * (seqlen_kv // PAGE_SIZE)",
        ),
    ),
    plant(
        "pages are as far apart as they are long",
        DECODE_PAGED,
        "several queries",
        "NaN lse, NaN o",
        Edit("k_at = page * stride_kb +", "k_at = page * PAGE_SIZE * stride_kn +", count=2),
    ),
    plant(
        "v has the pages of k and the slots of its own",
        DECODE_PAGED,
        "tails",
        "hard o",
        Edit("v_at = page * stride_vb + slot * stride_vn", "v_at = page * stride_vb", count=2),
    ),
    plant(
        "slots past the last key are multiplied in",
        DECODE_PAGED,
        "tails",
        "NaN o",
        Edit(
            "v = tl.load(v_block, mask=seen[:, None], other=0.0)",
            "v = tl.load(v_block)",
        ),
    ),
)
