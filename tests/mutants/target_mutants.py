"""Faults that the interpreter does not show: some show when compiled, some on a GPU alone.

Beside them the changes that look like faults and are none here.
"""

from __future__ import annotations

from mutant import CAUSAL, FP32, FULL, PAIR, PAIR_FP8, Edit, plant

# Right in the interpreter; wrong or refused where a target compiles them.
COMPILED = (
    plant(
        "float32 products in tf32",
        FP32,
        "compiled for sm_80",
        "tf32",
        Edit(', input_precision="ieee"', "", count=4),
    ),
    plant(
        "constants by annotation",
        FULL,
        "compiled for sm_80",
        "compile",
        Edit("BLOCK_N = tl.constexpr(16)", "BLOCK_N: tl.constexpr = 16"),
        Edit("BLOCK_M = tl.constexpr(16)", "BLOCK_M: tl.constexpr = 16"),
    ),
    plant(
        "an offset that changes its type in the loop",
        FULL,
        "compiled for sm_80",
        "compile",
        Edit("offset_k = tl.cast(0, tl.int64)", "offset_k = 0"),
    ),
    plant(
        "a product of 8 keys",
        FULL,
        "whole tiles",
        "does not run",
        Edit("BLOCK_N = tl.constexpr(16)", "BLOCK_N = tl.constexpr(8)"),
    ),
)

# What a CPU cannot show, and why; the edits are held to apply, and the CPU checks to pass.
ONLY_ON_GPU = {
    plant(
        "a merge in place does not wait for all warps",
        PAIR,
        "in place of a",
        "",
        Edit("    tl.debug_barrier()\n", ""),
    ): "the interpreter has one thread; a GPU's warp may overwrite an lse before another reads it",
    plant(
        "saturating turns NaN into a number",
        PAIR_FP8,
        "NaN lse",
        "",
        Edit(", propagate_nan=tl.PropagateNan.ALL", ""),
    ): "the interpreter's clamp keeps NaN whatever it is told; a GPU's minimum and maximum drop it",
    plant(
        "k and v are promised to be aligned",
        FULL,
        "views of one buffer, groups of 3",
        "",
        Edit("tl.load(k_ptrs + offset_k)", "tl.load(tl.multiple_of(k_ptrs + offset_k, [16, 16]))"),
    ): "the interpreter ignores hints; a GPU reads wide and faults on rows that are not aligned",
    plant(
        "the kernel runs on the current device",
        FULL,
        "whole tiles",
        "",
        Edit("with torch.cuda.device(q.get_device()):", "with torch.cuda.device(-1):"),
    ): "it takes two GPUs to have tensors on another device than the current one",
    plant(
        "every length is compiled anew",
        FULL,
        "whole tiles",
        "",
        Edit('        "seqlen_q",\n        "seqlen_kv",\n', ""),
    ): "the interpreter compiles nothing; what goes wrong is the number of compilations",
    plant(
        "lse's rows in 32 bits",
        FULL,
        "whole tiles",
        "",
        Edit("batch_head.to(tl.int64) * seqlen_q", "batch_head * seqlen_q"),
    ): "it takes 2**31 rows: 8 GiB of lse, and minutes a launch in the interpreter",
}

# Planted in other kernels these are faults; here they change no result, and the checks agree.
HARMLESS = {
    plant(
        "l starts at 1",
        CAUSAL,
        "more queries than keys",
        "",
        Edit("l = tl.zeros([BLOCK_M], tl.float32)", "l = tl.full([BLOCK_M], 1.0, tl.float32)"),
    ): "m starts at -inf, so the first rescale is by 0; in an empty row lse is -inf + log(1)",
    plant(
        "no guard in the lse of an empty row",
        CAUSAL,
        "more queries than keys",
        "",
        Edit(
            'tl.where(is_empty, float("-inf"), m + tl.log(l))',
            "m + tl.log(l)",
        ),
    ): "-inf + log(0) is -inf as well",
    plant(
        "k past the end is left undefined",
        FULL,
        "one short of a tile",
        "",
        Edit(
            "k = tl.load(k_ptrs + offset_k, mask=seen[:, None], other=0.0)",
            "k = tl.load(k_ptrs + offset_k, mask=seen[:, None])",
        ),
    ): "the mask selects, so a NaN score of a key that is hidden is dropped",
    plant(
        "q past the end is left undefined",
        FULL,
        "one past a tile",
        "",
        Edit(
            "mask=(offs_m < seqlen_q)[:, None], other=0.0)\n    m =",
            "mask=(offs_m < seqlen_q)[:, None])\n    m =",
        ),
    ): "rows past the last query are not stored",
}
