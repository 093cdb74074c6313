"""Faults of paged caches: which page, which slot, whose table, what no token is in."""

from __future__ import annotations

from mutant import PAGED, PAGED_CAUSAL, PAGED_WINDOW, Edit, plant

_TABLE = "tl.load(block_table + offs_n // page_size, mask=seen, other=0)"
_PAGE = "block_table + offs_n // page_size"

PAGES = (
    plant(
        "the last page's tail is not masked",
        PAGED,
        "a cache HND",
        "hard lse, hard o",
        Edit('        s = tl.where(visible, s, float("-inf"))\n', ""),
    ),
    plant(
        "v of unused slots is read",
        PAGED,
        "a cache HND",
        "NaN o",
        Edit(
            "v = tl.load(v_ptrs + offset_v, mask=seen[:, None], other=0.0)",
            "v = tl.load(v_ptrs + offset_v)",
        ),
    ),
    plant(
        "v of pages outside the window is read",
        PAGED_WINDOW,
        "pages before and after the window",
        "NaN o",
        Edit(
            "seen = (offs_n >= seen_begin) & (offs_n < seen_end)",
            "seen = offs_n < seen_end",
            count=2,
        ),
    ),
    plant(
        "table entries past the end are read",
        PAGED,
        "pages of 1",
        "out of bounds",
        Edit(_TABLE, f"tl.load({_PAGE})"),
    ),
    plant(
        "a page for each block",
        PAGED,
        "pages of 12",
        "hard lse, hard o",
        Edit(_PAGE, "block_table + start_n // page_size + offs_n * 0", count=2),
    ),
    plant(
        "page sizes are powers of two",
        PAGED,
        "pages of 12",
        "NaN lse, NaN o",
        Edit("(offs_n % page_size)", "(offs_n & (page_size - 1))", count=2),
    ),
    plant(
        "a page is page_size rows of the cache",
        PAGED,
        "a cache interleaved",
        "NaN lse, NaN o",
        Edit("page * stride_kp", "page * page_size * stride_kn", count=2),
    ),
    plant(
        "v's pages have k's stride",
        PAGED,
        "a cache v on its own",
        "NaN o",
        Edit("page * stride_vp", "page * stride_kp", count=2),
    ),
    plant(
        "v's slots have k's stride",
        PAGED,
        "a cache v on its own",
        "NaN o",
        Edit("slot * stride_vn", "slot * stride_kn", count=2),
    ),
    plant(
        "v's heads have k's stride, paged",
        PAGED,
        "a cache v on its own",
        "NaN o",
        Edit("head_kv * stride_vh", "head_kv * stride_kh"),
    ),
    plant(
        "rows of the table are as long as it is wide",
        PAGED,
        "a cache HND",
        "out of bounds",
        Edit("block_table.stride(0)", "max_pages"),
    ),
    plant(
        "the first row of the table serves all",
        PAGED,
        "a cache HND",
        "out of bounds",
        Edit("block_table_ptr + batch * stride_block_table_b", "block_table_ptr"),
    ),
    plant(
        "the first sequence's length serves all, paged",
        PAGED,
        "a cache HND",
        "hard lse, hard o",
        Edit("seqlens_kv_ptr + batch,", "seqlens_kv_ptr,"),
    ),
    plant(
        "a length past the table is not cut",
        PAGED,
        "lengths past the table",
        "out of bounds",
        Edit("tl.minimum(tl.maximum(own, 0), max_seqlen_kv)", "tl.maximum(own, 0)"),
    ),
    plant(
        "pages in 32 bits",
        PAGED,
        "pages 2**30 apart",
        "wrong address",
        Edit("other=0).to(tl.int64)", "other=0)"),
        Edit(f"tl.load({_PAGE}).to(tl.int64)", f"tl.load({_PAGE})"),
        Edit("(offs_n % page_size).to(tl.int64)", "offs_n % page_size", count=2),
    ),
    plant(
        "the width of the table is checked on the host",
        PAGED,
        "no length is brought to the host",
        "host sync",
        Edit("if max_seqlen_kv is not None:", "if max_seqlen_kv and int(seqlens_kv.max()):"),
    ),
    plant(
        "one query each begins with the second",
        PAGED_CAUSAL,
        "one query each",
        "NaN lse, NaN o",
        Edit("torch.arange(batch + 1,", "torch.arange(1, batch + 2,"),
    ),
)
