"""Faults of the changes of the scores: softcap, ALiBi, bias, mask."""

from __future__ import annotations

from mutant import ALIBI, BIAS, MASK, SOFTCAP, SOFTCAP_FP32, Edit, plant

_HIDE = 's = tl.where(visible, s, float("-inf"))'
_CAP = "s = softcap * tanh(s * sm_scale * (1.0 / softcap))"

SCORES = (
    plant(
        "the softcap comes after the mask",
        SOFTCAP,
        "one short of a tile",
        "hard lse, hard o",
        Edit(f"        {_CAP}\n", "        s = s * sm_scale\n", count=2, at=1),
        Edit(_HIDE, f"{_HIDE}\n        {_CAP.replace('sm_scale * ', '')}"),
    ),
    plant(
        "the softcap does not divide",
        SOFTCAP,
        "whole tiles",
        "hard lse, hard o",
        Edit("tanh(s * sm_scale * (1.0 / softcap))", "tanh(s * sm_scale)", count=2),
    ),
    plant(
        "the softcap does not multiply back",
        SOFTCAP,
        "whole tiles",
        "hard lse, hard o",
        Edit("s = softcap * tanh(", "s = tanh(", count=2),
    ),
    plant(
        "the softcap forgets the scale",
        SOFTCAP,
        "whole tiles",
        "hard lse, hard o",
        Edit("s * sm_scale * (1.0 / softcap)", "s * (1.0 / softcap)", count=2),
    ),
    plant(
        "a tanh that overflows",
        SOFTCAP,
        "scale 10",
        "NaN lse, NaN o",
        Edit(
            "far = 1.0 - 2.0 / (1.0 + tl.math.exp2(tl.abs(x) * (2.0 * LOG2_E)))",
            "e = tl.math.exp2(tl.abs(x) * (2.0 * LOG2_E))\n    far = (e - 1.0) / (e + 1.0)",
        ),
    ),
    plant(
        "a tanh that cancels near 0",
        SOFTCAP_FP32,
        "softcap 30",
        "sharp head",
        Edit("tl.abs(x) < 0.55", "tl.abs(x) < 0.0"),
    ),
    plant(
        "capped scores are scaled again",
        SOFTCAP,
        "whole tiles",
        "hard lse, hard o",
        Edit("(s, m, l, acc, LOG2_E)", "(s, m, l, acc, sm_scale * LOG2_E)", count=2),
    ),
    plant(
        "ALiBi's sign",
        ALIBI,
        "whole tiles",
        "hard lse, hard o",
        Edit("s -= slope *", "s += slope *", count=2),
    ),
    plant(
        "ALiBi's distance forgets the offset",
        ALIBI,
        "one query, many keys",
        "hard lse, hard o",
        Edit("tl.abs(position[:, None]", "tl.abs(offs_m[:, None]", count=2),
    ),
    plant(
        "ALiBi's distance has a sign",
        ALIBI,
        "whole tiles",
        "hard lse, hard o",
        Edit(
            "tl.abs(position[:, None] - offs_n[None, :])",
            "(position[:, None] - offs_n[None, :])",
            count=2,
        ),
    ),
    plant(
        "ALiBi's slope is that of the KV head",
        ALIBI,
        "one query, many keys",
        "hard lse, hard o",
        Edit("head * stride_alibi_slopes_h", "head_kv * stride_alibi_slopes_h"),
    ),
    plant(
        "ALiBi comes before the scale",
        ALIBI,
        "whole tiles",
        "hard lse, hard o",
        Edit("s -= slope *", "s -= sm_scale * slope *", count=2),
    ),
    plant(
        "the bias comes before the scale",
        BIAS,
        "whole tiles",
        "hard lse, hard o",
        Edit("s += bias.to(tl.float32)", "s += bias.to(tl.float32) * sm_scale", count=2),
    ),
    plant(
        "a contiguous bias is assumed",
        BIAS,
        "a bias laid out by keys",
        "hard lse, hard o",
        Edit(" * stride_bias_n", "", count=2),
    ),
    plant(
        "the bias is that of the KV head",
        BIAS,
        "one query, many keys",
        "hard lse, hard o",
        Edit("head * stride_bias_h", "head_kv * stride_bias_h"),
    ),
    plant(
        "the first sequence's bias serves all",
        BIAS,
        "one past a tile",
        "hard lse, hard o",
        Edit(" + batch * stride_bias_b", ""),
    ),
    plant(
        "the bias is taken for base 2",
        BIAS,
        "whole tiles",
        "hard lse, hard o",
        Edit("s += bias.to(tl.float32)", "s += bias.to(tl.float32) * 0.6931472", count=2),
    ),
    plant(
        "the mask is inverted",
        MASK,
        "whole tiles",
        "NaN lse, hard o",
        Edit("tl.where(mask != 0,", "tl.where(mask == 0,", count=2),
    ),
    plant(
        "the mask multiplies",
        MASK,
        "whole tiles",
        "NaN lse, hard o",
        Edit('s = tl.where(mask != 0, s, float("-inf"))', "s = s * mask.to(tl.float32)", count=2),
    ),
    plant(
        "a masked score is -1e4",
        MASK,
        "a mask that hides every key of some rows",
        "NaN lse, hard o",
        Edit(
            's = tl.where(mask != 0, s, float("-inf"))',
            "s = tl.where(mask != 0, s, -1.0e4)",
            count=2,
        ),
    ),
    plant(
        "a mask for each head is assumed",
        MASK,
        "one mask for all heads",
        "out of bounds",
        Edit("mask.stride(1)", "mask.shape[2] * mask.shape[3]"),
    ),
    plant(
        "the mask's rows are those of the whole batch",
        MASK,
        "one past a tile",
        "hard lse, hard o",
        Edit(" + batch * stride_mask_b", ""),
    ),
)
