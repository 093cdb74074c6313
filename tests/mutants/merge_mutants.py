"""Faults of the merge of two states: empty states, weights, units, outputs."""

from __future__ import annotations

from mutant import PAIR, PAIR_BASE2, PAIR_FP8, PAIR_FP32, Edit, plant

_CLAMP = "o = tl.clamp(o, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)"

EMPTY = (
    plant(
        "+inf of state a does not mean empty",
        PAIR,
        "empty states",
        "NaN lse, NaN o, bits",
        Edit('lse_a = tl.where(lse_a == float("inf"), float("-inf"), lse_a)', "lse_a = lse_a"),
    ),
    plant(
        "+inf of state b does not mean empty",
        PAIR,
        "empty states",
        "NaN lse, NaN o, bits",
        Edit('lse_b = tl.where(lse_b == float("inf"), float("-inf"), lse_b)', "lse_b = lse_b"),
    ),
    plant(
        "two empty states are not guarded",
        PAIR,
        "empty states",
        "NaN o, bits",
        Edit('tl.where(m == float("-inf"), 0.0, m)', "m"),
    ),
    plant(
        "the total of two empty states is 0",
        PAIR,
        "empty states",
        "NaN o, bits",
        Edit("tl.where(a_is_empty & b_is_empty, 1.0, w_a + w_b)", "w_a + w_b"),
    ),
    plant(
        "the o of two empty states is -0.0",
        PAIR,
        "empty states",
        "bits",
        Edit(
            "tl.where(a_is_empty & b_is_empty, 1.0, -1.0)",
            "tl.where(a_is_empty & b_is_empty, -1.0, -1.0)",
        ),
    ),
    plant(
        "the lse of two empty states is computed",
        PAIR,
        "empty states",
        "NaN lse",
        Edit("tl.where(total == 1.0, m, reference + tl.log(total))", "reference + tl.log(total)"),
    ),
    plant(
        "the o of an empty state a is multiplied by 0",
        PAIR,
        "empty states",
        "NaN o, bits",
        Edit("o_a = tl.where(a_is_empty[:, None, None], nothing, o_a)", "o_a = o_a"),
    ),
    plant(
        "the o of an empty state b is multiplied by 0",
        PAIR,
        "empty states",
        "NaN o, bits",
        Edit("o_b = tl.where(b_is_empty[:, None, None], nothing, o_b)", "o_b = o_b"),
    ),
    plant(
        "a state that is alone loses the sign of 0",
        PAIR,
        "empty states",
        "bits",
        Edit(
            "tl.where(a_is_empty & b_is_empty, 1.0, -1.0)",
            "tl.where(a_is_empty & b_is_empty, 1.0, 1.0)",
        ),
    ),
    plant(
        "a NaN lse means empty",
        PAIR,
        "NaN lse",
        "NaN lse, NaN o",
        Edit(
            'lse_a = tl.where(lse_a == float("inf"),',
            'lse_a = tl.where((lse_a == float("inf")) | (lse_a != lse_a),',
        ),
    ),
)

WEIGHTS = (
    plant(
        "weights are not normalised before they multiply",
        PAIR_FP32,
        "o as large as it gets",
        "hard o",
        Edit(
            "o = scale_a[:, None, None] * o_a + scale_b[:, None, None] * o_b",
            "o = (w_a[:, None, None] * o_a + w_b[:, None, None] * o_b)"
            " * (1.0 / total)[:, None, None]",
        ),
    ),
    plant(
        "scales that add up to more than 1 overflow",
        PAIR_FP32,
        "o as large as it gets",
        "NaN o",
        Edit("o = tl.where(o > largest, largest, tl.where(o < -largest, -largest, o))", "o = o"),
    ),
    plant(
        "o is not divided by the total",
        PAIR,
        "one row",
        "hard o",
        Edit(" * (1.0 / total)", "", count=2),
    ),
    plant(
        "the larger lse is not subtracted",
        PAIR,
        "one lse far above",
        "NaN lse, NaN o",
        Edit("m = tl.maximum(lse_a, lse_b)", "m = lse_a * 0.0"),
    ),
    plant(
        "the smaller lse is subtracted",
        PAIR,
        "one lse far above",
        "NaN lse, NaN o",
        Edit("m = tl.maximum(lse_a, lse_b)", "m = tl.minimum(lse_a, lse_b)"),
    ),
    plant(
        "the weights are exchanged",
        PAIR,
        "one row",
        "hard o",
        Edit("scale_a[:, None, None] * o_a", "scale_b[:, None, None] * o_a"),
        Edit("scale_b[:, None, None] * o_b", "scale_a[:, None, None] * o_b"),
    ),
    plant(
        "the scales are float16",
        PAIR,
        "whole tiles",
        "hard o",
        Edit("None] * o_a", "None].to(tl.float16) * o_a"),
        Edit("None] * o_b", "None].to(tl.float16) * o_b"),
    ),
    plant(
        "weights in base 2 of natural logarithms",
        PAIR,
        "one row",
        "hard lse, hard o",
        Edit(" - reference) * LOG2_E)", " - reference))", count=2),
    ),
    plant(
        "log2 is returned as the natural logarithm",
        PAIR,
        "one row",
        "hard lse",
        Edit("tl.log(total)", "tl.math.log2(total)"),
    ),
    plant(
        "natural weights of logarithms to base 2",
        PAIR_BASE2,
        "one row",
        "hard lse, hard o",
        Edit("exp2(lse_a - reference)", "exp2((lse_a - reference) * 1.442695)"),
        Edit("exp2(lse_b - reference)", "exp2((lse_b - reference) * 1.442695)"),
    ),
    plant(
        "the natural logarithm is returned as log2",
        PAIR_BASE2,
        "one row",
        "hard lse",
        Edit("tl.math.log2(total)", "tl.log(total)"),
    ),
)

OUTPUTS = (
    plant(
        "tokens without context are merged",
        PAIR,
        "some tokens without context",
        "bits, hard lse, hard o",
        Edit("in_range & (token < tokens_with_context - first_token)", "in_range"),
    ),
    plant(
        "tokens without context are not copied",
        PAIR,
        "some tokens without context",
        "NaN lse, NaN o, bits",
        Edit("mask=in_range[:, None, None])", "mask=has_a[:, None, None])"),
        Edit("lse, mask=in_range)", "lse, mask=has_a)"),
    ),
    plant(
        "one token too many has context",
        PAIR,
        "some tokens without context",
        "bits, hard lse, hard o",
        Edit("token < tokens_with_context", "token <= tokens_with_context"),
    ),
    plant(
        "context is counted from the tile on",
        PAIR,
        "some tokens without context",
        "bits, hard lse, hard o",
        Edit("tokens_with_context - first_token", "tokens_with_context"),
    ),
    plant(
        "context is counted over all sequences",
        PAIR,
        "sequences with tokens without context",
        "bits, hard lse, hard o",
        Edit("if tokens_with_context == tokens and ", "if "),
    ),
    plant(
        "no token with context means all",
        PAIR,
        "no token with context",
        "bits, hard lse, hard o",
        Edit("if tokens_with_context is None:", "if not tokens_with_context:"),
    ),
    plant(
        "o is multiplied by the output scale",
        PAIR_FP8,
        "one row",
        "hard o",
        Edit("(1.0 / tl.load(output_scale_ptr).to(tl.float32))", "tl.load(output_scale_ptr)"),
    ),
    plant(
        "float8 does not saturate",
        PAIR_FP8,
        "beyond the largest fp8",
        "NaN o",
        Edit(_CLAMP, "o = o"),
    ),
    plant(
        "float8 saturates at 240",
        PAIR_FP8,
        "beyond the largest fp8",
        "hard o",
        Edit("-448.0, 448.0", "-240.0, 240.0"),
    ),
    plant(
        "a scale is brought to the host",
        PAIR_FP8,
        "no scale is brought to the host",
        "host sync",
        Edit("        return output_scale\n", "        output_scale = output_scale.item()\n"),
    ),
    plant(
        "lse is returned unasked",
        PAIR,
        "no lse is asked for",
        "given out",
        Edit("    return out, out_lse\n\n\n@", "    return out, lse_a\n\n\n@"),
    ),
    plant(
        "o is allocated in the dtype of the states",
        PAIR_FP8,
        "what a merge allocates",
        "hard o",
        Edit("new_empty(o_a.shape, dtype=OUT_DTYPE)", "new_empty(o_a.shape)"),
    ),
)
