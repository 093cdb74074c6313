"""Probes of the merges that are no case of `attngen verify`: far tensors, launches, wrong calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from far_probes import apart
from probes import PROBES, NoSync, failed_checks, launched, probe

from attngen import verify_merge
from attngen.cases_merge import Case
from attngen.variant import Variant

FAR = 2**30
NAMES = {"merge_state": ("o_a", "lse_a", "o_b", "lse_b"), "merge_states": ("o", "lse")}
SMALL = Case("small", 6, 3)
Options = dict[str, Any]


def _launch(module: ModuleType, variant: Variant, arguments: Options) -> Any:
    return getattr(module, variant.spec.op)(**arguments)


def _arguments(variant: Variant, case: Case = SMALL) -> tuple[verify_merge.Call, Options]:
    call = verify_merge.prepare(variant, case, "cpu")
    named = zip(NAMES[variant.spec.op], call.tensors, strict=True)
    return call, {**dict(named), **call.options}


def _far(name: str, case: Case, tensors: dict[str, int]) -> str:
    """A probe in which one dimension of some tensors has its indices 2**30 elements apart."""

    def held(module: ModuleType, variant: Variant) -> set[str]:
        call, arguments = _arguments(variant, case)
        for tensor, dimension in tensors.items():
            arguments[tensor] = apart(arguments[tensor], dimension, FAR)
        o, lse = (x.double().numpy() for x in _launch(module, variant, arguments))
        return failed_checks(verify_merge.hold(variant.spec, module, call, o, lse.swapaxes(-1, -2)))

    def wrong(module: ModuleType, variant: Variant) -> set[str]:
        from triton.runtime.errors import InterpreterError

        from attngen.bounds import OutOfBounds

        try:
            return {"wrong address"} if held(module, variant) else set()
        except InterpreterError as error:
            if isinstance(error.__cause__, OutOfBounds):
                return {"wrong address"}
            raise

    probe(name)(wrong)
    return name


_ROWS = Case("far rows", 4, 4)
MERGE_FAR_PROBES = frozenset(
    {
        _far("heads of both states 2**30 apart", _ROWS, {"o_a": 1, "o_b": 1}),
        _far("tokens of both states 2**30 apart", _ROWS, {"o_a": 0, "o_b": 0}),
        _far("tokens of one head 2**30 apart", Case("one head", 4, 1), {"o_a": 0, "o_b": 0}),
        _far(
            "sequences of both states 2**30 apart",
            Case("far sequences", 2, 1, batch=(4,)),
            {"o_a": 0, "o_b": 0},
        ),
        _far("tokens of out 2**30 apart", _ROWS, {"out": 0}),
        _far("states 2**30 apart", Case("far states", 1, 1, states=4), {"o": 0}),
    }
)
"""The probes whose buffers are gigabytes, which have to stay untouched."""


@probe("the grid of 70000 tokens")
def grid(module: ModuleType, variant: Variant) -> set[str]:
    _, arguments = _arguments(variant, replace(SMALL, tokens=70000, heads=8))
    grids = launched(module, lambda: _launch(module, variant, arguments)).grids
    fine = len(grids) == 1 and all(axis <= 65535 for axis in grids[0][1:])
    return set() if fine else {"grid"}


@probe("no scale is brought to the host")
def host_sync(module: ModuleType, variant: Variant) -> set[str]:
    _, arguments = _arguments(variant)

    def call() -> None:
        with NoSync():  # type: ignore[no-untyped-call]
            _launch(module, variant, arguments)

    try:
        launched(module, call)
    except RuntimeError:
        return {"host sync"}
    return set()


@probe("what a merge allocates")
def allocated(module: ModuleType, variant: Variant) -> set[str]:
    call, arguments = _arguments(variant)
    o, lse = _launch(module, variant, arguments | {"out": None, "out_lse": None})
    got = o.double().numpy(), lse.double().numpy().swapaxes(-1, -2)
    return failed_checks(verify_merge.hold(variant.spec, module, call, *got))


@probe("no lse is asked for")
def no_lse(module: ModuleType, variant: Variant) -> set[str]:
    _, arguments = _arguments(variant)
    o, lse = _launch(module, variant, arguments | {"out_lse": None, "return_lse": False})
    return set() if lse is None and o is arguments["out"] else {"given out"}


@probe("lists that reach beyond the states")
def long_lists(module: ModuleType, variant: Variant) -> set[str]:
    """The last list claims states that are not there, the first begins before the others."""
    call, arguments = _arguments(variant)
    arguments["indptr"][-1] += 5
    arguments["indptr"][0] -= 5
    o, lse = (x.double().numpy() for x in _launch(module, variant, arguments))
    return failed_checks(verify_merge.hold(variant.spec, module, call, o, lse.swapaxes(-1, -2)))


@probe("strided lists")
def strided_lists(module: ModuleType, variant: Variant) -> set[str]:
    call, arguments = _arguments(variant)
    lists = arguments["indptr"]
    arguments["indptr"] = torch.stack([lists, lists.flip(0)], 1)[:, 0]
    o, lse = (x.double().numpy() for x in _launch(module, variant, arguments))
    return failed_checks(verify_merge.hold(variant.spec, module, call, o, lse.swapaxes(-1, -2)))


def _refused(
    name: str, error: type[Exception], words: str, spoil: Callable[[Options], Options]
) -> None:
    """A probe that a wrong call is refused by name, before anything is launched."""

    def held(module: ModuleType, variant: Variant) -> set[str]:
        _, arguments = _arguments(variant)
        arguments |= spoil(arguments)
        try:
            launched(module, lambda: _launch(module, variant, arguments))
        except (TypeError, ValueError) as got:
            fine = type(got) is error and str(got).startswith(words)
            return set() if fine else {"refusal"}
        except RuntimeError:
            return {"refusal"}
        return {"refusal"}

    PROBES[f"wrong merge: {name}"] = held


_refused(
    "lse_b in float16",
    TypeError,
    "lse_b: got torch.float16",
    lambda given: {"lse_b": given["lse_b"].half()},
)
_refused(
    "lse_a in the other layout",
    ValueError,
    "lse_a: got shape (6, 3), allowed with lse_layout='ht' is (3, 6) (it fits 'th')",
    lambda given: {"lse_a": given["lse_a"].mT.contiguous()},
)
_refused(
    "a layout that is none",
    ValueError,
    "lse_layout: got 'hd'",
    lambda given: {"lse_layout": "hd"},
)
_refused(
    "o_b of other tokens",
    ValueError,
    "o_b: got shape (5, 3, 16)",
    lambda given: {"o_b": given["o_b"][:5]},
)
_refused(
    "o_b with a strided last dimension",
    ValueError,
    "o_b: got last-dimension stride 2",
    lambda given: {"o_b": given["o_b"].repeat_interleave(2, -1)[..., ::2]},
)
_refused(
    "out a token after o_a",
    ValueError,
    "out: got memory that overlaps o_a",
    lambda given: _shifted("o_a", "out", given),
)
_refused(
    "out_lse a head after lse_b",
    ValueError,
    "out_lse: got memory that overlaps lse_b",
    lambda given: _shifted("lse_b", "out_lse", given),
)
_refused(
    "out in the memory of out_lse",
    ValueError,
    "out_lse: got memory that overlaps out,",
    lambda given: {"out_lse": given["out"].view(torch.float32)[..., 0].mT},
)
_refused(
    "7 of 6 tokens with context",
    ValueError,
    "prefill_tokens_with_context: got 7, allowed is 0 to 6",
    lambda given: {"prefill_tokens_with_context": 7},
)
_refused("a scale of 0", ValueError, "output_scale: got 0.0", lambda given: {"output_scale": 0.0})
_refused(
    "indptr in float32",
    TypeError,
    "indptr: got torch.float32",
    lambda given: {"indptr": given["indptr"].float()},
)
_refused(
    "batch dimensions that do not view as one",
    ValueError,
    "o_a: got strides",
    lambda given: {
        name: x[None, None].repeat(2, 3, 1, 1, *[1] * (x.dim() - 2)).transpose(0, 1)
        for name, x in given.items()
        if isinstance(x, torch.Tensor)
    },
)


def _shifted(source: str, target: str, given: Options) -> Options:
    """The input `source` and the output `target` in one buffer, one index of it apart."""
    x = given[source]
    buffer = torch.zeros((x.shape[0] + 1, *x.shape[1:]), dtype=x.dtype)
    return {source: buffer[:-1], target: buffer[1:]}
