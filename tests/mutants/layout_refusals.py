"""Wrong calls of varlen and paged launchers, and launchers that do not refuse them."""

from __future__ import annotations

from mutant import PAGED, VARLEN, VARLEN_CAUSAL, Edit, Mutant, plant
from probes import PROBES
from refusals import WrongCall, with_

WRONG_CALLS = (
    WrongCall(
        "lengths of queries as floats",
        TypeError,
        "cu_seqlens_q: got torch.float32",
        with_(cu_seqlens_q=lambda call: call["cu_seqlens_q"].float()),
    ),
    WrongCall(
        "lengths on another device",
        TypeError,
        "cu_seqlens_q: got device meta",
        with_(cu_seqlens_q=lambda call: call["cu_seqlens_q"].to("meta")),
    ),
    WrongCall(
        "lengths of two dimensions",
        ValueError,
        "cu_seqlens_q: got shape (1, 3)",
        with_(cu_seqlens_q=lambda call: call["cu_seqlens_q"][None]),
    ),
    WrongCall(
        "every second length",
        ValueError,
        "cu_seqlens_q: got last-dimension stride 2",
        with_(cu_seqlens_q=lambda call: call["cu_seqlens_q"].repeat_interleave(2)[::2]),
    ),
    WrongCall(
        "lengths of keys for another batch",
        ValueError,
        "cu_seqlens_kv: got shape (2,)",
        with_(cu_seqlens_kv=lambda call: call["cu_seqlens_kv"][:2]),
    ),
    WrongCall(
        "no cumulative lengths",
        ValueError,
        "cu_seqlens_q: got shape (0,)",
        with_(cu_seqlens_q=lambda call: call["cu_seqlens_q"][:0]),
    ),
    WrongCall(
        "v of another number of rows",
        ValueError,
        "v: got shape (27, 2, 16)",
        with_(v=lambda call: call["v"][1:]),
    ),
    WrongCall(
        "a longest sequence of -1",
        ValueError,
        "max_seqlen_q: got -1",
        with_(max_seqlen_q=lambda call: -1),
    ),
    WrongCall(
        "offsets for another batch, packed",
        ValueError,
        "causal_offset: got shape (3,)",
        with_(causal_offset=lambda call: call["cu_seqlens_q"]),
    ),
    WrongCall(
        "out of another number of rows",
        ValueError,
        "out: got shape (16, 4, 16)",
        with_(out=lambda call: call["q"][1:].clone()),
    ),
    WrongCall(
        "pages of size 0",
        ValueError,
        "k_cache: got page size 0",
        with_(
            k_cache=lambda call: call["k_cache"][:, :0],
            v_cache=lambda call: call["v_cache"][:, :0],
        ),
    ),
    WrongCall(
        "v of another page size",
        ValueError,
        "v_cache: got shape (7, 8, 2, 16)",
        with_(v_cache=lambda call: call["v_cache"][:, :8]),
    ),
    WrongCall(
        "a table of one dimension",
        ValueError,
        "block_table: got shape (2,)",
        with_(block_table=lambda call: call["block_table"][0]),
    ),
    WrongCall(
        "a table that is too narrow",
        ValueError,
        "block_table: got room for 2 pages of 16 keys",
        with_(max_seqlen_kv=lambda call: 49),
    ),
    WrongCall(
        "lengths of keys for another table",
        ValueError,
        "seqlens_kv: got shape (1,)",
        with_(seqlens_kv=lambda call: call["seqlens_kv"][:1]),
    ),
    WrongCall(
        "two rows for one sequence each",
        ValueError,
        "cu_seqlens_q: got None for 17 rows",
        with_(cu_seqlens_q=lambda call: None),
    ),
)
PROBES |= {f"wrong call: {call.name}": call for call in WRONG_CALLS}


def _unchecked(name: str, kernel: str, call: str, *edits: Edit) -> Mutant:
    return plant(name, kernel, f"wrong call: {call}", "refusal", *edits)


_INDEX_DTYPE = Edit("if tensor.dtype not in (torch.int32, torch.int64):", "if False:")
_SHAPE = '    _check_shape("{}", {}, {})\n'

CHECKS = (
    _unchecked(
        "the dtype of lengths is not checked", VARLEN, "lengths of queries as floats", _INDEX_DTYPE
    ),
    _unchecked(
        "the device of lengths is not compared",
        VARLEN,
        "lengths on another device",
        Edit(
            "    _check_device(name, tensor, q)\n    if tensor.dim() != len(dimensions):",
            "    if tensor.dim() != len(dimensions):",
        ),
    ),
    _unchecked(
        "the dimensions of lengths are not checked",
        VARLEN,
        "lengths of two dimensions",
        Edit("    if tensor.dim() != len(dimensions):", "    if False:"),
    ),
    _unchecked(
        "the stride of lengths is not checked",
        VARLEN,
        "every second length",
        Edit("if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:", "if False:"),
    ),
    _unchecked(
        "the number of lengths is not checked",
        VARLEN,
        "lengths of keys for another batch",
        Edit(_SHAPE.format("cu_seqlens_kv", "cu_seqlens_kv", "(batch + 1,)"), ""),
    ),
    _unchecked(
        "a batch of -1 is not checked",
        VARLEN,
        "no cumulative lengths",
        Edit("if batch < 0:", "if False:"),
    ),
    _unchecked(
        "v's rows are not counted",
        VARLEN,
        "v of another number of rows",
        Edit(_SHAPE.format("v", "v", "(total_kv, heads_kv, HEAD_DIM_V.value)"), ""),
    ),
    _unchecked(
        "a negative longest sequence is not checked",
        VARLEN,
        "a longest sequence of -1",
        Edit('    _check_length("max_seqlen_q", max_seqlen_q)\n', ""),
    ),
    _unchecked(
        "the number of offsets is not checked, packed",
        VARLEN_CAUSAL,
        "offsets for another batch, packed",
        Edit('        _check_shape("causal_offset", causal_offset, (batch,))\n', ""),
    ),
    _unchecked(
        "out's rows are not counted",
        VARLEN,
        "out of another number of rows",
        Edit('        _check_shape("out", out, (total_q, heads_q, HEAD_DIM_V.value))\n', ""),
    ),
    _unchecked(
        "the page size is not checked",
        PAGED,
        "pages of size 0",
        Edit("if page_size == 0:", "if False:"),
    ),
    _unchecked(
        "v's pages are not compared",
        PAGED,
        "v of another page size",
        Edit(
            _SHAPE.format(
                "v_cache", "v_cache", "(num_pages, page_size, heads_kv, HEAD_DIM_V.value)"
            ),
            "",
        ),
    ),
    _unchecked(
        "the dimensions of the table are not checked",
        PAGED,
        "a table of one dimension",
        Edit("    if tensor.dim() != len(dimensions):", "    if False:"),
    ),
    _unchecked(
        "the width of the table is not checked",
        PAGED,
        "a table that is too narrow",
        Edit("if max_seqlen_kv > max_pages * page_size:", "if False:"),
    ),
    _unchecked(
        "lengths and table are not compared",
        PAGED,
        "lengths of keys for another table",
        Edit(_SHAPE.format("seqlens_kv", "seqlens_kv", "(batch,)"), ""),
    ),
    _unchecked(
        "rows and sequences are not compared",
        PAGED,
        "two rows for one sequence each",
        Edit("if total_q != batch:", "if False:"),
    ),
)
