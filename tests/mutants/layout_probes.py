"""Probes of varlen and paged kernels that are not plain cases of `attngen.cases_layouts`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch
from far_probes import FAR, apart
from probes import NoSync, launched, probe
from triton.runtime.errors import InterpreterError

from attngen import verify_layouts
from attngen.bounds import OutOfBounds
from attngen.cases_layouts import PackedCase, packed_inputs
from attngen.variant import Variant
from attngen.verify_attention import TORCH_DTYPES

SMALL = PackedCase("small", (5, 12), (9, 19), 4, 2)


def packed_call(variant: Variant, case: PackedCase = SMALL) -> dict[str, Any]:
    """The arguments of a right call of a varlen or paged launcher, by name."""
    *numbers, options = packed_inputs(variant, case)
    dtype = TORCH_DTYPES[variant.spec.dtype]
    q, k, v = (torch.from_numpy(x).to(dtype) for x in numbers)
    arrays = {
        name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in options.items()
    }
    cu_seqlens_q = torch.from_numpy(case.cu_seqlens_q)
    longest = {"max_seqlen_q": max(case.queries), "max_seqlen_kv": max(case.keys)}
    call = {"q": q, "cu_seqlens_q": cu_seqlens_q, **longest, **arrays}
    if variant.spec.op == "attention_varlen":
        return call | {"k": k, "v": v, "cu_seqlens_kv": torch.from_numpy(case.cu_seqlens_kv)}
    table = verify_layouts.block_table(case, "cpu")
    k_cache, v_cache = verify_layouts.caches(k, v, case)
    verify_layouts.fill(k_cache, k, table, case)
    verify_layouts.fill(v_cache, v, table, case)
    pages = {"block_table": table, "seqlens_kv": torch.tensor(case.keys, dtype=torch.int32)}
    return call | {"k_cache": k_cache, "v_cache": v_cache} | pages


@probe("no length is brought to the host")
def no_sync(module: ModuleType, variant: Variant) -> set[str]:
    call = packed_call(variant)

    def launch() -> None:
        with NoSync():  # type: ignore[no-untyped-call]
            getattr(module, variant.spec.op)(**call)

    try:
        launched(module, launch)
    except RuntimeError:
        return {"host sync"}
    return set()


@probe("70000 sequences")
def many_sequences(module: ModuleType, variant: Variant) -> set[str]:
    case = PackedCase("many", (1,) * 70000, (1,) * 70000, 1, 1)
    call = packed_call(variant, case)
    grids = launched(module, lambda: module.attention_varlen(**call)).grids
    fine = len(grids) == 1 and all(axis <= 65535 for axis in grids[0][1:])
    return set() if fine else {"grid"}


def _far(name: str, case: PackedCase, tensors: tuple[str, ...], distance: int) -> str:
    """A probe in which the first dimension of some tensors has indices a distance apart."""

    def held(module: ModuleType, variant: Variant) -> set[str]:
        call = packed_call(variant, case)
        near = getattr(module, variant.spec.op)(**call)
        far = {tensor: apart(call[tensor], 0, distance) for tensor in tensors}
        out = torch.full_like(call["q"], torch.nan)
        if "q" in tensors:
            out = apart(out, 0, distance)
        try:
            o, lse = getattr(module, variant.spec.op)(**call | far, out=out)
        except InterpreterError as error:
            assert isinstance(error.__cause__, OutOfBounds)
            return {"wrong address"}
        right = torch.equal(o, near[0]) and torch.equal(lse, near[1])
        return set() if right else {"wrong address"}

    probe(name)(held)
    return name


FAR_LAYOUTS = frozenset(
    {
        _far("packed keys 2**25 apart", PackedCase("far", (3, 2), (50, 20), 1), ("k", "v"), FAR),
        _far("packed queries 2**25 apart", PackedCase("far", (50, 20), (3, 2), 1), ("q",), FAR),
        _far("pages 2**30 apart", PackedCase("far", (3,), (20,), 1), ("k_cache", "v_cache"), 2**30),
    }
)
"""The probes whose buffers are gigabytes, which have to stay untouched."""


@probe("lengths past the table")
def lengths_past_the_table(module: ModuleType, variant: Variant) -> set[str]:
    """The second of two sequences claims more keys than its pages hold: it has those."""
    case = PackedCase("past", (5, 12), (9, 32), 4, 2)
    call = packed_call(variant, case) | {"max_seqlen_kv": None}
    return _same(module, variant, call, {"seqlens_kv": call["seqlens_kv"] + torch.tensor([0, 99])})


@probe("bounds past the rows")
def bounds_past_the_rows(module: ModuleType, variant: Variant) -> set[str]:
    """Each bound of queries and keys lies a little outside the tensors, if it can."""
    call = packed_call(variant)
    past = torch.tensor([-1, 0, 70])
    bounds = {name: call[name] + past for name in ("cu_seqlens_q", "cu_seqlens_kv")}
    return _same(module, variant, call, bounds)


def _same(module: ModuleType, variant: Variant, call: dict[str, Any], changes: Any) -> set[str]:
    """Do the changed arguments give the bits of the right call?"""
    launch = getattr(module, variant.spec.op)
    o, lse = launch(**call)
    again, lse_again = launch(**call | changes)
    checks = set() if torch.equal(o, again) else {"hard o"}
    return checks if torch.equal(lse, lse_again) else checks | {"hard lse"}


@probe("pages before and after the window")
def pages_outside_the_window(module: ModuleType, variant: Variant) -> set[str]:
    """Pages that no query sees hold NaN, whether or not the sequence has tokens in them."""
    case = PackedCase("window", (2,), (94,), 1, page_size=4, options={"window_size": (5, 0)})
    call = packed_call(variant, case)
    expected = module.attention_paged(**call)
    unseen = call["block_table"][0, : (92 - 5) // 4].long()
    for cache in (call["k_cache"], call["v_cache"]):
        cache[unseen] = torch.nan
    o, lse = module.attention_paged(**call)
    checks = set() if torch.equal(o, expected[0]) else {"NaN o"}
    return checks if torch.equal(lse, expected[1]) else checks | {"NaN lse"}
