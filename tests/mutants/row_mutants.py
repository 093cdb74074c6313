"""Faults of row softmax: its recurrence, units, edges, masks, scales and addresses."""

from __future__ import annotations

from mutant import Edit, plant

SINGLE = "softmax_c64_fp16_single_lse_m4_w1_s1"
LOG = "softmax_c64_fp32_single_log_m4_w1_s1"
MASKED = "softmax_c64_bf16_single_lse_mask_scaled_m4_w1_s1"
ONLINE = "softmax_c512_fp32_online_lse_n256_w1_s1"
SAFE = "softmax_c512_bf16_safe_n256_w1_s1"
SPLIT = "softmax_c512_fp32_split_lse_n16_w1_s1"

_RESCALE = "l = l * tl.math.exp2((m - m_new) * scale_log2) + tl.sum(p, 0)"
_LOAD = 'x = tl.load(x_row + at * stride_x_column, mask=held, other=float("-inf"))'
_SIGNED = 'x = tl.where(tl.abs(x) < float("inf"), x * sign, x)'
_STATES = "l += l_others * tl.math.exp2((m_others - m_new) * LOG2_E)"
_TAIL_SUM = "        l += tl.sum(tl.math.exp2((x - m) * LOG2_E), 0)\n"

ROWS = (
    plant(
        "l of a row is not rescaled",
        ONLINE,
        "many tiles",
        "hard lse, hard o",
        Edit(_RESCALE, "l = l + tl.sum(p, 0)"),
    ),
    plant(
        "the rescale of a row is upside down",
        ONLINE,
        "a late outlier",
        "NaN lse, NaN o",
        Edit(_RESCALE, _RESCALE.replace("m - m_new", "m_new - m")),
    ),
    plant(
        "the states of the lanes are added without weights",
        ONLINE,
        "a whole tile",
        "hard lse, hard o",
        Edit("l = tl.sum(l * tl.math.exp2((m_lanes - m) * LOG2_E), 0)", "l = tl.sum(l, 0)"),
    ),
    plant(
        "l of a row starts at 1",
        ONLINE,
        "rows of -inf",
        "NaN lse",
        Edit("l = tl.zeros([LANES], tl.float32)", "l = tl.full([LANES], 1.0, tl.float32)"),
    ),
    plant(
        "m of a row starts at 0",
        ONLINE,
        "very negative entries",
        "NaN lse, hard o",
        Edit("m = tl.full([LANES], LOWEST,", "m = tl.full([LANES], 0.0,"),
    ),
    plant(
        "m of a row starts at -inf",
        ONLINE,
        "entries of -inf",
        "NaN lse, NaN o",
        Edit("m = tl.full([LANES], LOWEST,", 'm = tl.full([LANES], float("-inf"),'),
    ),
    plant(
        "the last pass begins a block too far to the right",
        ONLINE,
        "many tiles",
        "out of bounds",
        Edit("start = full_end - BLOCK_N - done", "start = full_end - done"),
    ),
    plant(
        "the maximum is not subtracted",
        SINGLE,
        "entries of 2**24",
        "NaN lse, NaN o",
        Edit("p = tl.math.exp2((x - m[:, None]) * LOG2_E)", "p = tl.math.exp2(x * LOG2_E)"),
    ),
    plant(
        "columns after the end are read",
        SINGLE,
        "rows apart",
        "out of bounds",
        Edit(_LOAD, _LOAD.replace("mask=held", "mask=(row < num_rows)[:, None]")),
    ),
    plant(
        "columns after the end count as 0",
        SINGLE,
        "a few columns",
        "hard lse, hard o",
        Edit('other=float("-inf")', "other=0.0"),
    ),
    plant(
        "a row of -inf is divided by 0",
        SINGLE,
        "rows of -inf",
        "NaN o",
        Edit("    l = tl.where(is_empty, 1.0, l)\n", ""),
    ),
    plant(
        "the lse of a row of -inf is the lowest number",
        SINGLE,
        "rows of -inf",
        "NaN lse",
        Edit('lse = tl.where(is_empty, float("-inf"), m + log_l)', "lse = m + log_l"),
    ),
    plant(
        "the maximum of a row of -inf is not guarded",
        SINGLE,
        "rows of -inf",
        "NaN lse, NaN o",
        Edit("m = tl.maximum(tl.max(x, 1), LOWEST)", "m = tl.max(x, 1)"),
    ),
    plant(
        "log2 of a row's l taken for its logarithm",
        SINGLE,
        "a whole tile",
        "hard lse",
        Edit("log_l = tl.log(l)", "log_l = tl.log2(l)"),
    ),
    plant(
        "exp for exp2 in a row",
        SINGLE,
        "a whole tile",
        "hard lse, hard o",
        Edit("tl.math.exp2(", "tl.exp("),
    ),
    plant(
        "log2(e) left out in a row",
        SINGLE,
        "a whole tile",
        "hard lse, hard o",
        Edit("(x - m[:, None]) * LOG2_E", "(x - m[:, None])"),
    ),
    plant(
        "the sum of a row in float16",
        SINGLE,
        "64 rows",
        "hard lse, hard o",
        Edit("l = tl.sum(p, 1)", "l = tl.sum(p.to(tl.float16), 1).to(tl.float32)"),
    ),
    plant(
        "rounded before the division too",
        SINGLE,
        "64 rows",
        "hard o",
        Edit("y = p * inverse_l", "y = p.to(tl.float16).to(tl.float32) * inverse_l"),
    ),
    plant(
        "the logarithm of a softmax that is 0",
        LOG,
        "entries of 2**24",
        "NaN o",
        Edit("y = (x - m[:, None]) - log_l[:, None]", "y = tl.log(p / l[:, None])"),
    ),
    plant(
        "the sum of a row leaves its end out",
        SAFE,
        "one past a tile",
        "hard o",
        Edit(_TAIL_SUM, "        l += 0.0\n", count=2, at=1),
    ),
    plant(
        "the maximum of a row leaves its end out",
        SAFE,
        "a few columns",
        "NaN o",
        Edit("        m = tl.maximum(m, tl.max(x, 0))\n", "        m = m\n", count=2, at=1),
    ),
    plant(
        "the state of the last part is left out",
        SPLIT,
        "many tiles",
        "hard lse, hard o",
        Edit("mask=others < parts", "mask=others < parts - 1", count=2),
    ),
    plant(
        "the states of the parts are added without weights",
        SPLIT,
        "more parts than are merged at once",
        "hard lse, hard o",
        Edit(_STATES, "l += l_others"),
    ),
    plant(
        "every row merges the states of the first",
        SPLIT,
        "many tiles",
        "hard lse, hard o",
        Edit("m_ptr + row.to(tl.int64) * parts", "m_ptr"),
        Edit("l_ptr + row.to(tl.int64) * parts", "l_ptr"),
    ),
    plant(
        "the mask is taken the other way round",
        MASKED,
        "a few columns",
        "hard lse, hard o",
        Edit("visible != 0", "visible == 0"),
    ),
    plant(
        "masked entries are very low numbers",
        MASKED,
        "very negative entries",
        "hard lse, hard o",
        Edit(
            'x = tl.where(visible != 0, x, float("-inf"))', "x = tl.where(visible != 0, x, -200.0)"
        ),
    ),
    plant(
        "the scale of a row is applied twice",
        MASKED,
        "a few columns",
        "hard lse, hard o",
        Edit("x * sign", "x * sign * scale"),
    ),
    plant(
        "the scale of a row is missing in lse",
        MASKED,
        "a few columns",
        "hard lse",
        Edit("m * scale + log_l", "m + log_l"),
    ),
    plant(
        "an entry of -inf times a negative scale is +inf",
        MASKED,
        "scale -0.5, temperature 2.0",
        "NaN lse, NaN o",
        Edit(_SIGNED, "x = x * sign"),
    ),
    plant(
        "an offset of rows in 32 bits",
        SINGLE,
        "rows of x 2**25 apart",
        "wrong address",
        Edit(
            "(row // inner).to(tl.int64)[:, None], (row % inner).to(tl.int64)[:, None]",
            "(row // inner)[:, None], (row % inner)[:, None]",
        ),
    ),
    plant(
        "an offset of columns in 32 bits",
        ONLINE,
        "columns of x 2**25 apart",
        "wrong address",
        Edit("at = offs.to(tl.int64)", "at = offs", count=4),
    ),
)
