"""Faults of decode: how the states of the splits are kept, merged and finished."""

from __future__ import annotations

from mutant import DECODE, DECODE_SINKS, Edit, plant

STATES = (
    plant(
        "the merge adds the states up",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit(
            "alpha_i = tl.math.exp2((m_i - reference) * (sm_scale * LOG2_E))",
            "alpha_i = tl.where(is_split, 1.0, 0.0)",
        ),
    ),
    plant(
        "the merge rescales acc alone",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit("tl.sum(l_i * alpha_i, 0)", "tl.sum(l_i, 0)"),
    ),
    plant(
        "the merge rescales l alone",
        DECODE,
        "a block a split",
        "hard o",
        Edit("tl.sum(acc_i * alpha_i[:, None], 0)", "tl.sum(acc_i, 0)"),
    ),
    plant(
        "the merge takes natural exponents for base 2",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit("(m_i - reference) * (sm_scale * LOG2_E)", "(m_i - reference) * sm_scale"),
    ),
    plant(
        "the merge forgets the scale of m",
        DECODE,
        "a block a split",
        "hard lse, hard o",
        Edit("(m_i - reference) * (sm_scale * LOG2_E)", "(m_i - reference) * LOG2_E"),
    ),
    plant(
        "the merged lse is the largest score",
        DECODE,
        "a block a split",
        "hard lse",
        Edit(
            "tl.store(lse_ptr + row + tl.arange(0, 1), lse)",
            "tl.store(lse_ptr + row + tl.arange(0, 1), m * sm_scale)",
        ),
    ),
    plant(
        "the merge looks for m among the first splits",
        DECODE,
        "eighty splits, the last the largest",
        "NaN lse, NaN o",
        Edit(
            "m_new = tl.maximum(m, tl.max(m_i, 0))",
            "m_new = tl.maximum(m, tl.max(m_i, 0)) if start_s == 0 else m",
        ),
    ),
    plant(
        "splits that were never launched are merged",
        DECODE,
        "a block a split",
        "out of bounds",
        Edit("is_split = splits < num_splits", "is_split = offs_s < BLOCK_S"),
    ),
    plant(
        "the acc of an empty split is not written",
        DECODE,
        "a key a split",
        "NaN o",
        Edit(
            "acc.to(o_ptr.dtype.element_ty), mask=o_mask)",
            "acc.to(o_ptr.dtype.element_ty), mask=o_mask & (l != 0.0)[:, None])",
        ),
    ),
    plant(
        "splits that are all empty are not guarded",
        DECODE,
        "no keys",
        "NaN lse, NaN o",
        Edit(
            'reference = tl.where(m_new == float("-inf"), 0.0, m_new)\n        alpha =',
            "reference = m_new\n        alpha =",
        ),
    ),
    plant(
        "states carry the logarithm of l",
        DECODE,
        "scores of 2**26 in two splits",
        "sharp row",
        Edit(
            "tl.store(m_ptr + states, m, mask=is_row)",
            "tl.store(m_ptr + states, m + tl.log(tl.maximum(l, 1.0)) / sm_scale, mask=is_row)",
        ),
        Edit(
            "tl.store(l_ptr + states, l, mask=is_row)",
            "tl.store(l_ptr + states, tl.where(l > 0, 1.0, 0.0), mask=is_row)",
        ),
        Edit(
            "tl.store(o_ptrs, acc.to(o_ptr",
            "tl.store(o_ptrs, (acc / tl.maximum(l, 1.0)[:, None]).to(o_ptr",
        ),
    ),
    plant(
        "the sink is in no split and not in the merge",
        DECODE_SINKS,
        "a block a split",
        "hard lse, hard o",
        Edit(
            "stride_sinks_h).to(tl.float32)\n    o, lse",
            'stride_sinks_h).to(tl.float32) + float("-inf")\n    o, lse',
        ),
    ),
    plant(
        "the merge takes the first head's sink",
        DECODE_SINKS,
        "a block a split",
        "hard lse, hard o",
        Edit(
            "sinks_ptr + head * stride_sinks_h).to(tl.float32)\n    o, lse",
            "sinks_ptr + 0 * head * stride_sinks_h).to(tl.float32)\n    o, lse",
        ),
    ),
    plant(
        "the sink is not rescaled with the rest",
        DECODE_SINKS,
        "a block a split",
        "hard lse, hard o",
        Edit(
            "l = l * alpha + tl.math.exp2((sink - reference) * LOG2_E)",
            "l = l * alpha + tl.math.exp2(sink * LOG2_E)",
        ),
    ),
    plant(
        "lse overflows where the scores do",
        DECODE,
        "scores beyond float32",
        "NaN lse",
        Edit("tl.minimum(tl.maximum(m * scale, -3.4e38), 3.4e38)", "m * scale"),
    ),
    plant(
        "states lie in the order of out",
        DECODE,
        "several queries",
        "hard o",
        Edit(
            "stride_os + row * HEAD_DIM_V",
            "stride_os + ((batch * seqlen_q + token) * heads_q + head) * HEAD_DIM_V",
        ),
    ),
)
