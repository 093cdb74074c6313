"""Faults of launchers: scales, offsets, grids, waits, and checks of arguments left out."""

from __future__ import annotations

from mutant import (
    ALIBI,
    BIAS,
    CAUSAL,
    FULL,
    MASK,
    SINKS,
    SOFTCAP,
    WINDOW,
    Edit,
    Mutant,
    plant,
)

_SIGN = "q = -q if sm_scale <= -(2.0**-126) else q * 0.0"

CALLS = (
    plant(
        "a negative scale loses its sign",
        FULL,
        "negative sm_scale",
        "hard lse, hard o",
        Edit(_SIGN, "q = q if sm_scale <= -(2.0**-126) else q * 0.0"),
    ),
    plant(
        "a scale of 0 counts as 1",
        FULL,
        "zero sm_scale",
        "hard lse, hard o",
        Edit(_SIGN, "q = -q if sm_scale <= -(2.0**-126) else q"),
    ),
    plant(
        "a scale of 0 reaches the kernel",
        CAUSAL,
        "zero sm_scale",
        "NaN lse, NaN o",
        Edit("if sm_scale < 2.0**-126:", "if sm_scale < 0.0:"),
    ),
    plant(
        "a negative scale reaches the kernel",
        CAUSAL,
        "negative sm_scale",
        "NaN lse, NaN o",
        Edit("if sm_scale < 2.0**-126:", "if sm_scale == 0.0:"),
    ),
    plant(
        "the default scale is 1 / head_dim",
        FULL,
        "whole tiles",
        "hard lse, hard o",
        Edit("1.0 / math.sqrt(HEAD_DIM.value)", "1.0 / HEAD_DIM.value"),
    ),
    plant(
        "a scale of 0 counts as not given",
        FULL,
        "zero sm_scale",
        "hard lse, hard o",
        Edit("if sm_scale is None:", "if not sm_scale:"),
    ),
    plant(
        "an offset of 0 counts as not given",
        CAUSAL,
        "top-left",
        "NaN lse, hard o",
        Edit(
            "if causal_offset is None:",
            "if causal_offset is None or (isinstance(causal_offset, int) and not causal_offset):",
        ),
    ),
    plant(
        "tiles on the grid's second axis",
        FULL,
        "the grid of 65544 heads",
        "grid",
        Edit("[(num_tiles,)]", "[(1, num_tiles)]"),
        Edit("tl.program_id(0)", "tl.program_id(1)", count=2),
    ),
    plant(
        "an offset a sequence is brought to the host",
        CAUSAL,
        "no value of a tensor is brought to the host",
        "host sync",
        Edit(
            "offsets, causal_offset = causal_offset.contiguous(), 0",
            "causal_offset = int(causal_offset.min())",
        ),
    ),
)


def _unchecked(name: str, kernel: str, call: str, *edits: Edit) -> Mutant:
    return plant(name, kernel, f"wrong call: {call}", "refusal", *edits)


CHECKS = (
    _unchecked(
        "heads are not checked",
        FULL,
        "5 query heads for 2 KV heads",
        Edit("if heads_kv == 0 or heads_q % heads_kv:", "if heads_kv == 0:"),
    ),
    _unchecked(
        "KV heads of 0 are not checked",
        FULL,
        "no KV heads",
        Edit("if heads_kv == 0 or heads_q % heads_kv:", "if heads_kv and heads_q % heads_kv:"),
    ),
    _unchecked(
        "dtypes are not checked",
        FULL,
        "k of another dtype",
        Edit("if tensor.dtype != DTYPE:", "if False:"),
    ),
    _unchecked(
        "devices are not compared",
        FULL,
        "k on another device",
        Edit("if tensor.device != q.device:", "if False:"),
    ),
    _unchecked(
        "a CPU is not refused",
        FULL,
        "CPU tensors, not interpreted",
        Edit("if not (tensor.is_cuda or _INTERPRETED):", "if False:"),
    ),
    _unchecked(
        "the head dim is not checked",
        FULL,
        "k of another head dim",
        Edit("if tensor.dim() != 4 or tensor.shape[3] != columns:", "if tensor.dim() != 4:"),
        Edit('    _check_shape("k", k, (batch, seqlen_kv, heads_kv, HEAD_DIM.value))\n', ""),
    ),
    _unchecked(
        "k's batch is not checked",
        FULL,
        "k of another batch",
        Edit('    _check_shape("k", k, (batch, seqlen_kv, heads_kv, HEAD_DIM.value))\n', ""),
    ),
    _unchecked(
        "v's length is not checked",
        FULL,
        "v of another length",
        Edit('    _check_shape("v", v, (batch, seqlen_kv, heads_kv, HEAD_DIM_V.value))\n', ""),
    ),
    _unchecked(
        "the last stride is not checked",
        FULL,
        "every second column of q",
        Edit("if tensor.stride(3) != 1:", "if False:"),
    ),
    _unchecked(
        "out's shape is not checked",
        FULL,
        "out of another length",
        Edit(
            '        _check_shape("out", out, (batch, seqlen_q, heads_q, HEAD_DIM_V.value))\n', ""
        ),
    ),
    _unchecked(
        "out's dtype and strides are not checked",
        FULL,
        "out with a strided last dimension",
        Edit('        _check_rows("out", out, HEAD_DIM_V.value, q)\n', ""),
    ),
    _unchecked(
        "rows of out may overlap",
        FULL,
        "out of one row for all",
        Edit("if 0 in out.stride() and any(", "if False and any("),
    ),
    _unchecked(
        "the type of the scale is not checked",
        FULL,
        "a tensor as scale",
        Edit("isinstance(sm_scale, bool) or not isinstance(sm_scale, (int, float))", "False"),
    ),
    _unchecked(
        "the scale is not checked",
        FULL,
        "a scale of NaN",
        Edit("elif not math.isfinite(sm_scale):", "elif False:"),
    ),
    _unchecked(
        "the lengths are not checked",
        FULL,
        "2**28 queries",
        Edit("if max(seqlen_q, seqlen_kv) >= 2**28:", "if False:"),
    ),
    _unchecked(
        "the type of an offset is not checked",
        CAUSAL,
        "an offset of 1.5",
        Edit("isinstance(causal_offset, bool) or not isinstance(causal_offset, int)", "False"),
    ),
    _unchecked(
        "the dtype of offsets is not checked",
        CAUSAL,
        "offsets in float32",
        Edit("if causal_offset.dtype not in (torch.int32, torch.int64):", "if False:"),
    ),
    _unchecked(
        "the number of offsets is not checked",
        CAUSAL,
        "offsets for another batch",
        Edit('        _check_shape("causal_offset", causal_offset, (batch,))\n', ""),
    ),
    _unchecked(
        "the window is not checked",
        WINDOW,
        "a window of -2",
        Edit("if min(window_size) < -1:", "if False:"),
    ),
    _unchecked(
        "the type of the window is not checked",
        WINDOW,
        "one number as window",
        Edit("not isinstance(window_size, (tuple, list))", "False"),
    ),
    _unchecked(
        "a softcap of 0 is not checked",
        SOFTCAP,
        "a softcap of 0",
        Edit("if not 2.0**-126 <= softcap < 2.0**128:", "if not 0.0 <= softcap < 2.0**128:"),
    ),
    _unchecked(
        "the softcap is not checked",
        SOFTCAP,
        "a softcap of NaN",
        Edit("if not 2.0**-126 <= softcap < 2.0**128:", "if softcap <= 0:"),
    ),
    _unchecked(
        "a softcap past float32 is not checked",
        SOFTCAP,
        "a softcap of 1e39",
        Edit("if not 2.0**-126 <= softcap < 2.0**128:", "if not 2.0**-126 <= softcap < math.inf:"),
    ),
    _unchecked(
        "the type of the softcap is not checked",
        SOFTCAP,
        "a tensor as softcap",
        Edit("isinstance(softcap, bool) or not isinstance(softcap, (int, float))", "False"),
    ),
    _unchecked(
        "the type of sinks is not checked",
        SINKS,
        "a list as sinks",
        Edit(
            'q\'s device, and that to one that the kernel runs on."""\n'
            "    if not isinstance(tensor, torch.Tensor):",
            'q\'s device, and that to one that the kernel runs on."""\n    if False:',
        ),
    ),
    _unchecked(
        "the dtype of slopes is not checked",
        ALIBI,
        "slopes in float16",
        Edit("if alibi_slopes.dtype != torch.float32:", "if False:"),
    ),
    _unchecked(
        "the number of sinks is not checked",
        SINKS,
        "sinks for other heads",
        Edit('    _check_shape("sinks", sinks, (heads_q,))\n', ""),
    ),
    _unchecked(
        "the dtype of the mask is not checked",
        MASK,
        "a mask of integers",
        Edit("if mask.dtype != torch.bool:", "if False:"),
    ),
    _unchecked(
        "the dtype of the bias is not checked",
        BIAS,
        "a bias in float64",
        Edit("if not bias.dtype.is_floating_point or bias.dtype == torch.float64:", "if False:"),
    ),
    _unchecked(
        "the bias's device is not compared",
        BIAS,
        "a bias on another device",
        Edit('    _check_device("bias", bias, q)\n', ""),
    ),
)
