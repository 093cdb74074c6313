"""Run a merge kernel on a case and hold o and lse to the reference, element by element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime.errors import InterpreterError

from attngen.bounds import OutOfBounds
from attngen.cases_merge import Case, inputs
from attngen.outputs import nan_filled_outputs
from attngen.reference import merge_budget, merge_states
from attngen.reference.checks import Verdict, compare
from attngen.reference.merge_forms import dense_states, merge_states_base2
from attngen.spec_merge import Merge, MergeStates
from attngen.variant import Variant

TORCH_DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
}
OUTPUT_SCALE = float(np.float32(0.05))
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Call:
    """One call of a merge kernel: what it is given, and what has to come out.

    Attributes:
        tensors: the positional arguments.
        options: the keyword arguments.
        buffers: the memory that out and out_lse are views of, NaN but for them.
        o: all states' o as numbers, [states, *batch, tokens, heads, head_dim].
        lse: theirs, [states, *batch, tokens, heads].
    """

    tensors: tuple[torch.Tensor, ...]
    options: dict[str, Any]
    buffers: tuple[torch.Tensor, ...]
    o: Floats
    lse: Floats


def check(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one kernel on one case and compare o and lse with the reference, element by element."""
    spec: Merge = variant.spec
    call = prepare(variant, case, device)
    launcher = getattr(module, spec.op)
    failures = []
    try:
        with nan_filled_outputs():
            o, lse = launcher(*call.tensors, **call.options)
    except InterpreterError as error:
        if not isinstance(error.__cause__, OutOfBounds):
            raise
        failures.append(str(error.__cause__))
        o, lse = call.options["out"], call.options["out_lse"]
    if o is not call.options["out"] or lse is not call.options["out_lse"]:
        failures.append("returned another tensor than out")
    got_o = _numpy(o)
    got_lse = None if lse is None else _th(_numpy(lse), case.layout)
    for tensor in (o, lse):
        if tensor is not None:
            tensor.fill_(torch.nan)
    if not all(buffer.float().isnan().all() for buffer in call.buffers):
        failures.append("wrote beyond the rows of out")
    verdict = hold(spec, module, call, got_o, got_lse)
    return replace(verdict, failures=(*verdict.failures, *failures))


def hold(spec: Merge, module: ModuleType, call: Call, o: Floats, lse: Floats | None) -> Verdict:
    """Compare the o and the lse [*batch, tokens, heads] of a call with the reference."""
    merge = merge_states_base2 if spec.base2 else merge_states
    scale = call.options.get("output_scale", 1.0)
    scale = scale.item() if isinstance(scale, torch.Tensor) else scale
    expected_o, expected_lse = merge(call.o, call.lse, lse_layout="th")
    expected_o = expected_o / scale
    if spec.out_fp8:
        expected_o = np.clip(expected_o, -448.0, 448.0)
    bounds = merge_budget(
        call.o,
        call.lse,
        lse_layout="th",
        out_dtype=spec.out_dtype,
        base2=spec.base2,
        output_scale=scale,
        block_states=module.BLOCK_STATES.value if isinstance(spec, MergeStates) else 2,
    )
    got_lse = expected_lse if lse is None else lse
    verdict = compare(o, got_lse, expected_o, expected_lse, *bounds, out_dtype="fp32")
    wrong = _not_selected(spec, call, o, got_lse)
    words = (f"bits: {wrong} rows are not the one state that is not empty, or 0",) if wrong else ()
    return replace(verdict, failures=(*verdict.failures, *words))


def _not_selected(spec: Merge, call: Call, o: Floats, lse: Floats) -> int:
    """In how many rows with one state that is not empty o or lse are not that state's bits.

    And in how many rows with none o is not 0 but -0.0.
    """
    full = np.isfinite(call.lse)
    has_nan = np.isnan(call.lse).any(axis=0)
    alone = (full.sum(axis=0) == 1) & ~has_nan
    negative = np.signbit(o[(full.sum(axis=0) == 0) & ~has_nan]).any(axis=-1).sum()
    which = full.argmax(axis=0) if len(full) else np.zeros(alone.shape, dtype=np.intp)
    rows = np.nonzero(alone)
    wrong = ~_same_bits(lse[rows], call.lse[which[rows], *rows])
    if not spec.out_fp8:
        o_alone = torch.from_numpy(call.o[which[rows], *rows]).to(TORCH_DTYPES[spec.dtype])
        wrong |= ~_same_bits(o[rows], _numpy(o_alone.to(TORCH_DTYPES[spec.out_dtype]))).all(axis=-1)
    return int(wrong.sum() + negative)


def _same_bits(a: Floats, b: Floats) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (a == b) & (np.signbit(a) == np.signbit(b))
    return same


def prepare(variant: Variant, case: Case, device: str) -> Call:
    """The call of a kernel on a case."""
    spec: Merge = variant.spec
    drawn_o, drawn_lse = inputs(variant, case)
    o, lse = torch.from_numpy(drawn_o).to(TORCH_DTYPES[spec.dtype]), torch.from_numpy(drawn_lse)
    shape = o.shape[1:]
    options: dict[str, Any] = {"lse_layout": case.layout, "return_lse": case.return_lse}
    if spec.out_fp8:
        options["output_scale"] = torch.full((1,), OUTPUT_SCALE, device=device)
    exact = (_numpy(o), _numpy(lse))
    tensors: list[torch.Tensor] = []
    if not isinstance(spec, MergeStates):
        for i in range(2):
            tensors.append(_place(o[i], 3 * i + 1 if case.strided else 0, device)[0])
            tensors.append(_place_lse(lse[i], case, 3 * i + 2, device)[0])
        if case.context is not None:
            options["prefill_tokens_with_context"] = case.context
            exact[1][0, ..., case.context :, :] = -np.inf
    else:
        if spec.ragged:
            indptr = _indptr(case)
            o, lse = _ragged(o, indptr), _ragged(lse, indptr)
            exact = dense_states(_numpy(o), _numpy(lse), indptr, lse_layout="th")
            options["indptr"] = torch.tensor(indptr, dtype=torch.int32, device=device)
        tensors.append(_place(o, 1 if case.strided else 0, device)[0])
        tensors.append(_place_lse(lse, case, 2, device)[0])
    out, out_buffer = _place(
        torch.full(shape, torch.nan).to(TORCH_DTYPES[spec.out_dtype]),
        6 if case.strided else 0,
        device,
    )
    out_lse, lse_buffer = _place_lse(torch.full(shape[:-1], torch.nan), case, 7, device)
    buffers: tuple[torch.Tensor, ...] = (out_buffer, lse_buffer)
    if case.in_place:
        first = 2 * "ab".index(case.in_place)
        out, out_lse, buffers = tensors[first], tensors[first + 1], ()
    options |= {"out": out, "out_lse": out_lse if case.return_lse else None}
    return Call(tuple(tensors), options, buffers, *exact)


def _indptr(case: Case) -> list[int]:
    """Lists of states for the tokens: as long as may be, empty, and in between."""
    counts = [(case.states + 1 - token) % (case.states + 1) for token in range(1, case.tokens + 1)]
    return [0, *np.cumsum(counts).tolist()]


def _ragged(x: torch.Tensor, indptr: list[int]) -> torch.Tensor:
    """The first states of each token [states, tokens, ...], one token after the other."""
    counts = np.diff(indptr)
    lists = [x[:count, token] for token, count in enumerate(counts)]
    return torch.cat([*lists, x[:0, :1].reshape(0, *x.shape[2:])])


def _place(x: torch.Tensor, extra: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The same numbers as a view amid NaN, and all that NaN; contiguous where `extra` is 0.

    `extra` is by how much every dimension of the buffer is larger; of an even number heads lie
    before tokens.
    """
    if extra and extra % 2 == 0:
        view, buffer = _place(x.transpose(-2, -3).contiguous(), extra + 3, device)
        return view.transpose(-2, -3), buffer
    sizes = [n + extra for n in x.shape] if extra else [x.shape[0] + 2, *x.shape[1:]]
    buffer = torch.full(sizes, torch.nan, device=device).to(x.dtype)
    where = tuple(slice(1, n + 1) for n in x.shape) if extra else slice(1, x.shape[0] + 1)
    view = buffer[where]
    view.copy_(x)
    return view, buffer


def _place_lse(
    lse: torch.Tensor, case: Case, extra: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """An lse [..., tokens, heads] in the case's layout amid NaN, and all that NaN."""
    if case.layout == "ht":
        lse = lse.transpose(-1, -2).contiguous()
    view, buffer = _place(lse[..., None], extra if case.strided else 0, device)
    return view[..., 0], buffer


def _th(lse: Floats, layout: str) -> Floats:
    return lse if layout == "th" else np.swapaxes(lse, -1, -2)


def _numpy(x: torch.Tensor) -> Any:
    return x.double().cpu().numpy()
