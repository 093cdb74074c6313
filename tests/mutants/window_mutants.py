"""Faults of sliding windows."""

from __future__ import annotations

from mutant import TWO_SIDED, WINDOW, Edit, plant

WINDOWS = (
    plant(
        "the window is one key short",
        WINDOW,
        "one past a tile",
        "hard lse, hard o",
        Edit("first_key = position - window_left", "first_key = position - window_left + 1"),
    ),
    plant(
        "the window is one key long",
        WINDOW,
        "one past a tile",
        "hard lse, hard o",
        Edit("- window_left", "- window_left - 1", count=4),
    ),
    plant(
        "the window's right side is ignored",
        TWO_SIDED,
        "one past a tile",
        "hard lse, hard o",
        Edit(
            "tl.minimum(position + window_right, seqlen_kv - 1)",
            "tl.minimum(position, seqlen_kv - 1)",
        ),
    ),
    plant(
        "the window's right side is one key long",
        TWO_SIDED,
        "one past a tile",
        "hard lse, hard o",
        Edit("+ window_right", "+ window_right + 1", count=4),
    ),
    plant(
        "the window's left side is not masked",
        WINDOW,
        "one past a tile",
        "hard lse, hard o",
        Edit("        visible &= offs_n[None, :] >= first_key[:, None]\n", "", count=2),
    ),
    plant(
        "the window ignores the offset",
        WINDOW,
        "one query, many keys",
        "hard lse, hard o",
        Edit("first_key = position - window_left", "first_key = offs_m - window_left"),
    ),
    plant(
        "blocks that the window cuts count as whole",
        WINDOW,
        "one past a tile",
        "hard lse, hard o",
        Edit(
            "full_begin = tl.cdiv(tl.maximum(last_row + causal_offset - window_left, 0), BLOCK_N)",
            "full_begin = kv_begin // BLOCK_N",
        ),
    ),
    plant(
        "the loop starts after the window does",
        WINDOW,
        "an offset a sequence",
        "hard lse, hard o",
        Edit("kv_begin = tl.maximum(start_m", "kv_begin = tl.maximum(last_row"),
    ),
    plant(
        "the first block's address is that of key 0",
        WINDOW,
        "one query, many keys",
        "hard o",
        Edit("tl.cast(kv_begin, tl.int64) * stride_vn", "tl.cast(0, tl.int64)"),
    ),
    plant(
        "v before the window is read",
        WINDOW,
        "NaN in the rows of v that no query sees",
        "NaN o",
        Edit(
            "seen = (offs_n >= seen_begin) & (offs_n < seen_end)",
            "seen = offs_n < seen_end",
            count=2,
        ),
    ),
    plant(
        "an unbounded window sees nothing before the query",
        WINDOW,
        "a window open on the left",
        "NaN lse, hard o",
        Edit(
            "2**30 if window_size[0] == -1 else min(window_size[0], 2**30)",
            "min(window_size[0], 2**30)",
        ),
    ),
)
