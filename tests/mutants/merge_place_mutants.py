"""Faults of the merge of two states in where they read and write: layouts, strides, tiles."""

from __future__ import annotations

from mutant import PAIR, PAIR_PADDED, Edit, plant

PLACES = (
    plant(
        "the layouts of lse are exchanged",
        PAIR,
        "as many heads as tokens",
        "hard o",
        Edit(
            '(-1, -2) if lse_layout == "ht" else (-2, -1)',
            '(-2, -1) if lse_layout == "ht" else (-1, -2)',
        ),
    ),
    plant(
        "lse_layout is ignored",
        PAIR,
        "empty states, th",
        "NaN lse, NaN o, bits",
        Edit('(-1, -2) if lse_layout == "ht" else (-2, -1)', "(-1, -2)"),
    ),
    plant(
        "the suffix is strided as the prefix",
        PAIR,
        "strided",
        "NaN o",
        Edit('_strides("o_b", o_b, -3, -2)', '_strides("o_b", o_a, -3, -2)'),
    ),
    plant(
        "the suffix's lse is strided as the prefix's",
        PAIR,
        "strided",
        "out of bounds",
        Edit('_strides("lse_b", lse_b, token, head)', '_strides("lse_b", lse_a, token, head)'),
    ),
    plant(
        "out is strided as the prefix",
        PAIR,
        "strided",
        "NaN o, rows around out",
        Edit('_strides("out", out, -3, -2)', '_strides("out", o_a, -3, -2)'),
    ),
    plant(
        "heads are head_dim apart",
        PAIR,
        "strided",
        "NaN o",
        Edit("head * stride_o_a_head", "head * HEAD_DIM"),
    ),
    plant(
        "a carry from heads to tokens is lost",
        PAIR,
        "three heads, th",
        "NaN lse, NaN o",
        Edit("(row // heads)", "(row * 0)"),
    ),
    plant(
        "the first token of a tile is forgotten",
        PAIR,
        "whole tiles",
        "hard o",
        Edit(" + first_token * stride_o_b_token", ""),
    ),
    plant(
        "the first head of a tile is forgotten",
        PAIR,
        "three heads, th",
        "NaN lse, NaN o",
        Edit("behind % heads + tl.arange", "0 * behind + tl.arange"),
    ),
    plant(
        "sequences are one long one, whatever their strides",
        PAIR,
        "sequences, strided, th",
        "NaN lse, NaN o, rows around out",
        Edit(
            "return tokens == 1 or all(batch == tokens * token for batch, token, _ in strides)",
            "return True",
        ),
    ),
    plant(
        "the batch stride of out is forgotten",
        PAIR,
        "sequences",
        "NaN o",
        Edit("batch * stride_out_batch + ", ""),
    ),
    plant(
        "the last tile is as long as the others",
        PAIR,
        "sequences",
        "out of bounds",
        Edit("token < tokens - first_token\n", "token < tokens\n"),
    ),
    plant(
        "padding columns are read and written",
        PAIR_PADDED,
        "strided",
        "out of bounds",
        Edit(" & (offs_d < HEAD_DIM)", "", count=3),
    ),
    plant(
        "the last column is dropped",
        PAIR_PADDED,
        "one row",
        "NaN o",
        Edit("(offs_d < HEAD_DIM)", "(offs_d < HEAD_DIM - 1)", count=3),
    ),
    plant(
        "a head times its stride in 32 bits",
        PAIR,
        "heads of both states 2**30 apart",
        "wrong address",
        Edit("(row % heads).to(tl.int64)", "(row % heads)"),
    ),
    plant(
        "a token times its stride in 32 bits",
        PAIR,
        "tokens of one head 2**30 apart",
        "wrong address",
        Edit("(row // heads).to(tl.int64)", "(row // heads)"),
    ),
    plant(
        "a tile's first token times its stride in 32 bits",
        PAIR,
        "tokens of both states 2**30 apart",
        "wrong address",
        Edit(
            "(tile // heads).to(tl.int64) * BLOCK_M + behind // heads",
            "tile // heads * BLOCK_M + behind // heads",
        ),
    ),
    plant(
        "a sequence times its stride in 32 bits",
        PAIR,
        "sequences of both states 2**30 apart",
        "wrong address",
        Edit(
            "(tl.program_id(0) // tiles_a_sequence).to(tl.int64)",
            "(tl.program_id(0) // tiles_a_sequence)",
        ),
    ),
    plant(
        "a token of out times its stride in 32 bits",
        PAIR,
        "tokens of out 2**30 apart",
        "wrong address",
        Edit("first_token * stride_out_token", "first_token.to(tl.int32) * stride_out_token"),
        Edit(" = token * stride_out_token", " = token.to(tl.int32) * stride_out_token"),
    ),
    plant(
        "tiles of the merge on the grid's second axis",
        PAIR,
        "the grid of 70000 tokens",
        "grid",
        Edit("[(num_tiles,)]", "[(1, num_tiles)]"),
        Edit("tl.program_id(0)", "tl.program_id(1)", count=2),
    ),
)
