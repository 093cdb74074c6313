"""Faults of the merge of many states, and of the checks of both merges."""

from __future__ import annotations

from mutant import LIST, LIST_BASE2, LIST_FP32, PAIR, PAIR_FP8, RAGGED, Edit, Mutant, plant

_RESCALE = "l = l * tl.math.exp2((m - reference) * LOG2_E)"

LISTS = (
    plant(
        "+inf does not mean empty where weights are added up",
        LIST,
        "empty states",
        "NaN lse, NaN o, bits",
        Edit('lse = tl.where(lse == float("inf"), float("-inf"), lse)', "lse = lse"),
    ),
    plant(
        "+inf does not mean empty where o is added up",
        LIST,
        "empty states",
        "NaN o, bits",
        Edit('lse_i = tl.where(lse_i == float("inf"), float("-inf"), lse_i)', "lse_i = lse_i"),
    ),
    plant(
        "the o of an empty one of many states is multiplied by 0",
        LIST,
        "9 states, empty ones among them",
        "NaN o",
        Edit('o_i = tl.where((lse_i == float("-inf"))[:, None, None], nothing, o_i)', "o_i = o_i"),
    ),
    plant(
        "the one full state of many loses the sign of 0",
        LIST,
        "empty states",
        "bits",
        Edit("tl.where(is_empty, 1.0, -1.0)", "tl.where(is_empty, 1.0, 1.0)"),
    ),
    plant(
        "the sum of many states starts at 0",
        LIST,
        "empty states",
        "bits",
        Edit(
            "o = tl.broadcast_to(nothing, [BLOCK_M, CHUNKS, BLOCK_C])",
            "o = tl.zeros([BLOCK_M, CHUNKS, BLOCK_C], tl.float32)",
        ),
    ),
    plant(
        "a NaN lse among many means empty",
        LIST,
        "NaN lse",
        "NaN lse, NaN o",
        Edit(
            'lse = tl.where(lse == float("inf"),',
            'lse = tl.where((lse == float("inf")) | (lse != lse),',
        ),
        Edit(
            'lse_i = tl.where(lse_i == float("inf"),',
            'lse_i = tl.where((lse_i == float("inf")) | (lse_i != lse_i),',
        ),
    ),
    plant(
        "a block of empty states is not guarded",
        LIST,
        "empty states before full ones",
        "NaN lse, NaN o",
        Edit('tl.where(m_new == float("-inf"), 0.0, m_new)', "m_new"),
    ),
    plant(
        "the lse of no states is 0",
        LIST,
        "0 states",
        "NaN lse",
        Edit("tl.where(total == 1.0, m, reference + tl.log(total))", "reference + tl.log(total)"),
    ),
    plant(
        "the sum of weights is not rescaled",
        LIST,
        "17 states",
        "hard lse, hard o",
        Edit(_RESCALE, "l = l"),
    ),
    plant(
        "the sum of weights starts afresh in every block",
        LIST,
        "17 states",
        "NaN o, hard lse",
        Edit(_RESCALE, "l = l * 0.0"),
    ),
    plant(
        "states beyond the first block carry no weight",
        LIST,
        "17 states",
        "hard lse, hard o",
        Edit("tl.range(0, num_states, BLOCK_STATES)", "tl.range(0, BLOCK_STATES, BLOCK_STATES)"),
    ),
    plant(
        "two states are merged, however many there are",
        LIST,
        "3 states",
        "hard o",
        Edit("in tl.range(0, num_states):", "in tl.range(0, 2):"),
    ),
    plant(
        "many weights are not normalised before they multiply",
        LIST_FP32,
        "o as large as it gets",
        "hard o",
        Edit(" * (1.0 / total)", ""),
        Edit(
            "    # The scales may", "    o = o * (1.0 / total)[:, None, None]\n    # The scales may"
        ),
    ),
    plant(
        "many scales that add up to more than 1 overflow",
        LIST_FP32,
        "o as large as it gets",
        "NaN o",
        Edit("o = tl.where(o > largest, largest, tl.where(o < -largest, -largest, o))", "o = o"),
    ),
    plant(
        "many logarithms to base 2 are summed as natural ones",
        LIST_BASE2,
        "3 states",
        "hard lse",
        Edit("tl.math.log2(total)", "tl.log(total)"),
    ),
    plant(
        "states of lse are as far apart as those of o",
        LIST,
        "3 states",
        "out of bounds",
        Edit("            lse.stride(0),\n", "            o.stride(0),\n"),
    ),
    plant(
        "a state times its stride in 32 bits",
        LIST,
        "states 2**30 apart",
        "wrong address",
        Edit("offset = tl.cast(state, tl.int64)", "offset = tl.cast(state, tl.int32)"),
    ),
)

LISTS_BY_TOKEN = (
    plant(
        "every list begins with the first state",
        RAGGED,
        "3 states",
        "bits, hard lse, hard o",
        Edit("first_state * stride_lse_state + ", ""),
        Edit("first_state * stride_o_state + ", ""),
    ),
    plant(
        "every list is as long as the longest",
        RAGGED,
        "3 states",
        "bits, hard lse, hard o",
        Edit("(states[None, :] < own_states[:, None])", "(states[None, :] < most_states)"),
        Edit("(state < own_states)", "(state < most_states)"),
    ),
    plant(
        "lists are as long as the shortest",
        RAGGED,
        "3 states",
        "NaN lse, bits, hard o",
        Edit("tl.max(own_states, 0)", "tl.min(own_states, 0)"),
    ),
    plant(
        "a list's end is among its states",
        RAGGED,
        "3 states",
        "out of bounds",
        Edit("- first_state\n", "- first_state + 1\n"),
    ),
    plant(
        "lists may reach beyond the states",
        RAGGED,
        "lists that reach beyond the states",
        "out of bounds",
        Edit("tl.minimum(last_state.to(tl.int64), num_states)", "last_state.to(tl.int64)"),
    ),
    plant(
        "lists may begin before the states",
        RAGGED,
        "lists that reach beyond the states",
        "out of bounds",
        Edit("tl.maximum(first_state.to(tl.int64), 0)", "first_state.to(tl.int64)"),
    ),
    plant(
        "indptr is read as if contiguous",
        RAGGED,
        "strided lists",
        "NaN lse, bits, hard o",
        Edit(" * stride_indptr", ""),
        Edit("indptr_ptrs + stride_indptr", "indptr_ptrs + 1"),
    ),
    plant(
        "lists are those of the first tile",
        RAGGED,
        "3 states",
        "bits, hard lse, hard o",
        Edit("(first_token + token) * stride_indptr", "token * stride_indptr"),
    ),
)


def _unchecked(name: str, kernel: str, call: str, *edits: Edit) -> Mutant:
    return plant(name, kernel, f"wrong merge: {call}", "refusal", *edits)


_LSE = "_check_tensor(name, lse, o, torch.float32)"
_APART = 'raise ValueError(\n                f"{name}: got memory'

MERGE_CHECKS = (
    _unchecked(
        "lse of any float",
        PAIR,
        "lse_b in float16",
        Edit(_LSE, "_check_tensor(name, lse, o, lse.dtype)"),
    ),
    _unchecked(
        "lse of any layout",
        PAIR,
        "lse_a in the other layout",
        Edit("if got != shapes[lse_layout]:", "if got not in shapes.values():"),
    ),
    _unchecked(
        "any word is a layout",
        PAIR,
        "a layout that is none",
        Edit("if lse_layout not in shapes:", "if False:"),
        Edit("if got != shapes[lse_layout]:", "if got not in shapes.values():"),
    ),
    _unchecked(
        "the suffix may have other tokens",
        PAIR,
        "o_b of other tokens",
        Edit('    _check_shape("o_b", o_b, tuple(o_a.shape))\n', ""),
    ),
    _unchecked(
        "the columns of o may be strided",
        PAIR,
        "o_b with a strided last dimension",
        Edit("tensor.stride(-1) != 1 and", "False and"),
    ),
    _unchecked(
        "out may overlap a state",
        PAIR,
        "out a token after o_a",
        Edit('        _check_apart("out", out, inputs, ("o_a", "o_b"))\n', ""),
    ),
    _unchecked(
        "out_lse may overlap a state",
        PAIR,
        "out_lse a head after lse_b",
        Edit("if _overlap(output, other):", 'if name == "out" and _overlap(output, other):'),
    ),
    _unchecked(
        "out_lse may overlap out",
        PAIR,
        "out in the memory of out_lse",
        Edit('{**inputs, "out": out}', "inputs"),
    ),
    _unchecked(
        "more context than tokens",
        PAIR,
        "7 of 6 tokens with context",
        Edit("elif not 0 <= tokens_with_context <= tokens:", "elif tokens_with_context < 0:"),
    ),
    _unchecked(
        "an output scale of 0",
        PAIR_FP8,
        "a scale of 0",
        Edit("if not 0 < output_scale", "if not 0 <= output_scale"),
    ),
    _unchecked(
        "lists of floats",
        RAGGED,
        "indptr in float32",
        Edit("indptr.dtype not in (torch.int32, torch.int64)", "False"),
    ),
    _unchecked(
        "batch dimensions of any strides",
        PAIR,
        "batch dimensions that do not view as one",
        Edit("if any(wide != size * narrow", "if False and any(wide != size * narrow"),
    ),
)
