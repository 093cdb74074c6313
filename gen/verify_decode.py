"""Run a decode kernel on a case and hold o and lse to the reference, sequence by sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from attngen.cases_attention import Floats
from attngen.cases_decode import Case, inputs, paged
from attngen.reference import attention, error_budget
from attngen.reference.checks import Verdict, compare, plain_attention
from attngen.variant import Variant
from attngen.verify_attention import (
    TORCH_DTYPES,
    as_numpy,
    called,
    guarded,
    on_device,
    place,
)


def check(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one kernel on one case and compare o and lse with the reference, element by element."""
    spec = variant.spec
    dtype = TORCH_DTYPES[spec.dtype]
    q, k, v, options = inputs(variant, case)
    tensors, layout = _tensors(variant, case, (q, k, v), dtype, device)
    out, guard = guarded((*q.shape[:3], spec.head_dim_v), dtype, device)
    arguments = {**layout, **on_device(options, device), **case.splits, "out": out}
    o, lse, failures = called(
        lambda: module.attention_decode(*tensors, **arguments),
        out,
        (len(q), case.heads_q, case.seqlen_q),
    )
    exact = [as_numpy(torch.from_numpy(x).to(dtype)) for x in (q, k, v)]
    expected = _expected(variant, case, exact, options)
    verdict = compare(as_numpy(o), as_numpy(lse), *expected, out_dtype=spec.dtype)
    if not guard.isnan().all():
        failures.append("wrote beyond the rows of out")
    return replace(verdict, failures=(*failures, *verdict.failures))


def _tensors(
    variant: Variant,
    case: Case,
    numbers: tuple[Floats, Floats, Floats],
    dtype: torch.dtype,
    device: str,
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """q, k and v amid NaN, or q and the caches, and the lengths (and table) of the sequences."""
    q, k, v = numbers
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
    if not variant.spec.paged:
        return place((q, k, v), dtype, device), {"seqlens_kv": lengths}
    rng = np.random.default_rng(len(case.name))
    k_cache, v_cache, table = paged(rng, case, k, v)
    caches = [torch.from_numpy(cache).to(device, dtype) for cache in (k_cache, v_cache)]
    if case.by_heads:
        caches = [cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in caches]
    # A table of a wider one: its rows are further apart than they are long.
    wider = torch.full((len(table), table.shape[1] + 2), 2**30, dtype=torch.int32, device=device)
    block_table = wider[:, : table.shape[1]]
    block_table.copy_(torch.from_numpy(table))
    layout = {"block_table": block_table, "seqlens_kv": lengths}
    return [*place((q,), dtype, device), *caches], layout


def _expected(variant: Variant, case: Case, exact: list[Any], options: dict[str, Any]) -> list[Any]:
    """o, lse, their bounds, and plain attention's o, of all sequences."""
    spec, config = variant.spec, variant.config
    results = []
    for b, attn in enumerate(_options(case, options)):
        q, k, v = exact[0][b : b + 1], *(x[b : b + 1, : case.lengths[b]] for x in exact[1:])
        attn["causal"] = spec.causal
        state = attention(q, k, v, **attn)
        bounds = error_budget(
            q,
            k,
            v,
            operand_dtype=spec.dtype,
            block_n=config.block_n,
            num_splits=case.num_splits,
            **attn,
        )
        plain = plain_attention(q, k, v, operand_dtype=spec.dtype, **attn)
        results.append((*state, *bounds, plain))
    return [np.concatenate(parts) for parts in zip(*results, strict=True)]


def _options(case: Case, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of each sequence: of an offset a sequence, its own."""
    for b in range(len(case.lengths)):
        own = dict(options)
        if isinstance(own.get("causal_offset"), np.ndarray):
            own["causal_offset"] = int(own["causal_offset"][b])
        yield own
