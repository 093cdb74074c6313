"""Faults of softmax with top-k: ties, indices, what is kept, and its probabilities."""

from __future__ import annotations

from mutant import Edit, plant

TOP = "softmax_topk_c512_k5_fp32_n128_w1_s1"

_LOAD = 'x = tl.load(x_row + at * stride_x_column, mask=held, other=float("-inf"))'

TOPK = (
    plant(
        "a later entry displaces an equal one",
        TOP,
        "ties across tiles",
        "indices",
        Edit("while best > least:", "while best >= least:"),
    ),
    plant(
        "equal entries come last first",
        TOP,
        "ties across tiles",
        "indices",
        Edit("top_at[None, :] < top_at[:, None]", "top_at[None, :] > top_at[:, None]"),
    ),
    plant(
        "of equal entries the last of a step is taken",
        TOP,
        "ties across tiles",
        "indices",
        Edit(
            "tl.min(tl.min(tl.where(x == best, offs, NOWHERE), 0), 0)",
            "tl.max(tl.max(tl.where(x == best, offs, -1), 0), 0)",
        ),
    ),
    plant(
        "the first of the least gives way",
        TOP,
        "equal entries, then a larger one",
        "indices",
        Edit(
            "last = tl.max(tl.where(top_x == least, top_at, -1), 0)",
            "last = tl.min(tl.where(top_x == least, top_at, NOWHERE), 0)",
        ),
    ),
    plant(
        "an index counts from its step",
        TOP,
        "many tiles",
        "indices",
        Edit("tl.where(gives_way, at, top_at)", "tl.where(gives_way, at % BLOCK_N, top_at)"),
    ),
    plant(
        "an entry that was taken stays",
        TOP,
        "many tiles",
        "NaN o, indices, values",
        Edit('        x = tl.where(offs == at, float("-inf"), x)\n', ""),
    ),
    plant(
        "the probabilities are of the k largest alone",
        TOP,
        "many tiles",
        "hard o",
        Edit(
            "* (1.0 / l)",
            "/ tl.sum(tl.where(place < k, tl.math.exp2((top_x - m) * LOG2_E), 0.0), 0)",
        ),
    ),
    plant(
        "places beyond k are filled too",
        TOP,
        "many tiles",
        "hard o, indices, values",
        Edit(
            'top_x = tl.where(place < k, float("-inf"), float("inf"))',
            'top_x = tl.where(place < k, float("-inf"), float("-inf"))',
        ),
    ),
    plant(
        "a row with +inf keeps its numbers",
        TOP,
        "+inf and NaN",
        "indices, values",
        Edit('    top_x = tl.where(l == l, top_x, float("nan"))\n', ""),
    ),
    plant(
        "ranks without an entry have a column",
        TOP,
        "fewer entries than k",
        "indices",
        Edit('tl.where(top_x > float("-inf"), top_at, -1)', "top_at"),
    ),
    plant(
        "columns after the end take part in the search",
        TOP,
        "rows apart",
        "out of bounds",
        Edit(_LOAD, _LOAD.replace("mask=held", "mask=at >= 0")),
    ),
)
