"""Faults of the recurrence, of the units of scores and sums, and of the sink."""

from __future__ import annotations

from mutant import CAUSAL, FULL, SINKS, Edit, plant

_STEP = "online_softmax_step(s, m, l, acc, sm_scale * LOG2_E)"
_P_V = "acc = tl.dot(p.to(tl.float16), v, acc)"
_LSE = 'lse = tl.where(is_empty, float("-inf"), m + tl.log(l))'
_SINK = "sink = tl.load(sinks_ptr + head * stride_sinks_h).to(tl.float32)"

RECURRENCE = (
    plant(
        "acc is not rescaled",
        FULL,
        "one past a tile",
        "hard o",
        Edit("    acc = acc * alpha[:, None]\n", ""),
    ),
    plant(
        "acc is rescaled twice",
        FULL,
        "one past a tile",
        "hard o",
        Edit("acc * alpha[:, None]", "acc * (alpha * alpha)[:, None]"),
    ),
    plant(
        "l is not rescaled",
        FULL,
        "one past a tile",
        "hard lse, hard o",
        Edit("l = l * alpha + tl.sum(p, 1)", "l = l + tl.sum(p, 1)"),
    ),
    plant(
        "the rescale is upside down",
        FULL,
        "one past a tile",
        "NaN lse, NaN o",
        Edit("(m - reference) * scale_log2", "(reference - m) * scale_log2"),
    ),
    plant(
        "the maximum of earlier blocks is forgotten",
        FULL,
        "scale 10",
        "NaN lse, NaN o",
        Edit("m_new = tl.maximum(m, tl.max(s, 1))", "m_new = tl.max(s, 1)"),
    ),
    plant(
        "m starts at 0 and l at 1: a sink that nobody asked for",
        FULL,
        "one short of a tile",
        "hard lse, hard o",
        Edit(
            'm = tl.full([BLOCK_M], float("-inf"), tl.float32)',
            "m = tl.zeros([BLOCK_M], tl.float32)",
        ),
        Edit("l = tl.zeros([BLOCK_M], tl.float32)", "l = tl.full([BLOCK_M], 1.0, tl.float32)"),
    ),
    plant(
        "m starts at 0",
        FULL,
        "very negative scores",
        "NaN lse, hard o",
        Edit(
            'm = tl.full([BLOCK_M], float("-inf"), tl.float32)',
            "m = tl.zeros([BLOCK_M], tl.float32)",
        ),
    ),
    plant(
        "rows that have seen no key yet are not guarded",
        CAUSAL,
        "more queries than keys",
        "NaN lse, NaN o",
        Edit('reference = tl.where(m_new == float("-inf"), 0.0, m_new)', "reference = m_new"),
    ),
    plant(
        "no guard where o is divided for an empty row",
        CAUSAL,
        "more queries than keys",
        "NaN o",
        Edit("tl.where(is_empty, 1.0, l)", "l"),
    ),
    plant(
        "the lse of an empty row is +inf",
        CAUSAL,
        "more queries than keys",
        "NaN lse",
        Edit('lse = tl.where(is_empty, float("-inf")', 'lse = tl.where(is_empty, float("inf")'),
    ),
    plant(
        "the lse of an empty row is 0",
        FULL,
        "no keys",
        "NaN lse",
        Edit('lse = tl.where(is_empty, float("-inf")', "lse = tl.where(is_empty, 0.0"),
    ),
    plant(
        "o is not divided by l",
        FULL,
        "whole tiles",
        "hard o",
        Edit("acc * (1.0 / tl.where(is_empty, 1.0, l))[:, None]", "acc"),
    ),
    plant(
        "the cut block is not multiplied with v",
        CAUSAL,
        "one short of a tile",
        "hard o",
        Edit(f"        {_P_V}\n", "", count=2, at=1),
    ),
    plant(
        "a whole block is not multiplied with v",
        CAUSAL,
        "whole tiles",
        "hard o",
        Edit(f"        {_P_V}\n", "", count=2, at=0),
    ),
    plant(
        "the product with v starts afresh",
        FULL,
        "whole tiles",
        "hard o",
        Edit(_P_V, _P_V.replace(", acc)", ")"), count=2),
    ),
)

UNITS = (
    plant(
        "lse in base 2",
        FULL,
        "whole tiles",
        "hard lse",
        Edit(_LSE, f"{_LSE}\n    lse = lse * LOG2_E"),
    ),
    plant(
        "log2 of l taken for its logarithm",
        FULL,
        "whole tiles",
        "hard lse",
        Edit("tl.log(l)", "tl.log2(l)"),
    ),
    plant(
        "exp for exp2",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit("tl.math.exp2(", "tl.exp(", count=2),
    ),
    plant(
        "log2(e) left out",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit("sm_scale * LOG2_E", "sm_scale", count=2),
    ),
    plant(
        "the scale is missing in lse",
        FULL,
        "whole tiles",
        "hard lse",
        Edit("tl.maximum(m * sm_scale, -3.4e38)", "tl.maximum(m, -3.4e38)"),
    ),
    plant(
        "lse overflows with the scaled maximum",
        FULL,
        "scores past the end of float32",
        "NaN lse",
        Edit("tl.minimum(tl.maximum(m * sm_scale, -3.4e38), 3.4e38)", "m * sm_scale"),
    ),
    plant(
        "the scale is applied twice",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit(_STEP, _STEP.replace("(s,", "(s * sm_scale,"), count=2),
    ),
    plant(
        "q is scaled too",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit("tl.dot(q, k.T)", "tl.dot((q * sm_scale).to(q.dtype), k.T)", count=2),
    ),
)

SINK = (
    plant(
        "the sink is added in every block",
        SINKS,
        "whole tiles",
        "hard lse, hard o",
        Edit(
            f"        p, m, l, acc = {_STEP}\n",
            f"        p, m, l, acc = {_STEP}\n        {_SINK}\n"
            "        l += tl.math.exp2((sink - m * sm_scale) * LOG2_E)\n",
            count=2,
        ),
    ),
    plant(
        "the sink is scaled",
        SINKS,
        "whole tiles",
        "hard lse, hard o",
        Edit(_SINK, f"{_SINK} * sm_scale"),
    ),
    plant(
        "the sink is left out of l",
        SINKS,
        "whole tiles",
        "hard lse, hard o",
        Edit("l = l * alpha + tl.math.exp2((sink - reference) * LOG2_E)", "l = l * alpha"),
    ),
    plant(
        "the sink is taken for base 2",
        SINKS,
        "whole tiles",
        "hard lse, hard o",
        Edit("(sink - reference) * LOG2_E", "sink - reference"),
    ),
    plant(
        "the sink meets a maximum that is not scaled",
        SINKS,
        "whole tiles",
        "hard lse, hard o",
        Edit("tl.maximum(m * sm_scale, -3.4e38)", "tl.maximum(m, -3.4e38)"),
    ),
    plant(
        "acc is not rescaled for the sink",
        SINKS,
        "very negative scores",
        "hard o",
        Edit("    acc = acc * alpha[:, None]\n", "", count=2, at=1),
    ),
    plant(
        "the sink of the KV head",
        SINKS,
        "one query, many keys",
        "hard lse, hard o",
        Edit("sinks_ptr + head *", "sinks_ptr + head_kv *"),
    ),
    plant(
        "a sink of -inf in an empty row is not guarded",
        SINKS,
        "more queries than keys",
        "NaN lse, NaN o",
        Edit('tl.where(m_sink == float("-inf"), 0.0, m_sink)', "m_sink"),
    ),
)
