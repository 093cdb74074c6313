"""Faults of precision: what is rounded too early, and sums that are too narrow."""

from __future__ import annotations

from mutant import BF16, FP32, FULL, Edit, plant

_P_V = "acc = tl.dot(p.to(tl.float16), v, acc)"

PRECISION = (
    plant(
        "P is not cast", FULL, "whole tiles", "does not run", Edit("p.to(tl.float16)", "p", count=2)
    ),
    plant(
        "P is cast before l sums it, fp16",
        FULL,
        "scale 0.1",
        "hard lse",
        Edit("tl.sum(p, 1)", "tl.sum(p.to(tl.float16).to(tl.float32), 1)"),
    ),
    plant(
        "P is cast before l sums it, bf16",
        BF16,
        "one past a tile",
        "hard lse",
        Edit("tl.sum(p, 1)", "tl.sum(p.to(tl.bfloat16).to(tl.float32), 1)"),
    ),
    plant(
        "l in fp16",
        FULL,
        "many blocks of keys",
        "hard lse, sharp row",
        Edit(
            "l = l * alpha + tl.sum(p, 1)",
            "l = (l * alpha + tl.sum(p, 1)).to(tl.float16).to(tl.float32)",
        ),
    ),
    plant(
        "acc in fp16",
        FULL,
        "many blocks of keys",
        "sharp row",
        Edit(_P_V, f"{_P_V}.to(tl.float16).to(tl.float32)", count=2),
    ),
    plant(
        "acc in bf16",
        BF16,
        "many blocks of keys",
        "sharp row",
        Edit(
            "acc = tl.dot(p.to(tl.bfloat16), v, acc)",
            "acc = tl.dot(p.to(tl.bfloat16), v, acc).to(tl.bfloat16).to(tl.float32)",
            count=2,
        ),
    ),
    plant(
        "scores in fp16",
        FULL,
        "whole tiles",
        "hard lse",
        Edit("tl.dot(q, k.T)", "tl.dot(q, k.T).to(tl.float16).to(tl.float32)", count=2),
    ),
    plant(
        "scores in bf16",
        BF16,
        "whole tiles",
        "hard lse",
        Edit("tl.dot(q, k.T)", "tl.dot(q, k.T).to(tl.bfloat16).to(tl.float32)", count=2),
    ),
    plant(
        "P of float32 operands is rounded to bf16",
        FP32,
        "whole tiles",
        "hard o",
        Edit("p.to(tl.float32)", "p.to(tl.bfloat16).to(tl.float32)", count=2),
    ),
    plant(
        "the exponent takes the difference of scaled scores",
        FULL,
        "scores of 2**24",
        "sharp row",
        Edit(
            "(s - reference[:, None]) * scale_log2",
            "s * scale_log2 - (reference * scale_log2)[:, None]",
        ),
    ),
    plant(
        "lse in fp16",
        FULL,
        "whole tiles",
        "hard lse",
        Edit("(batch, heads_q, seqlen_q), dtype=torch.float32)", "(batch, heads_q, seqlen_q))"),
    ),
    plant(
        "log2(e) to five places",
        FP32,
        "64 rows, many blocks",
        "sharp head",
        Edit("LOG2_E = tl.constexpr(1.4426950408889634)", "LOG2_E = tl.constexpr(1.44269)"),
    ),
)
