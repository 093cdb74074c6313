"""Run a varlen or paged kernel on a case and hold o and lse to the reference, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from attngen import reference
from attngen.cases_layouts import PackedCase, packed_inputs
from attngen.reference import error_budget
from attngen.reference.checks import Verdict, compare, plain_attention
from attngen.variant import Variant
from attngen.verify_attention import TORCH_DTYPES, as_numpy, called, guarded, on_device, place

JUNK = (-1, 2**30, 7, -(2**31))
"""What stands in a block table where no token is: also pages that are, or could not be."""


def check_varlen(module: ModuleType, variant: Variant, case: PackedCase, device: str) -> Verdict:
    """Run one varlen kernel on one case and compare o and lse with the reference."""
    *numbers, options = packed_inputs(variant, case)
    placed = place(
        (x[None] for x in numbers), TORCH_DTYPES[variant.spec.dtype], device, fused=case.fused
    )
    q, k, v = (x[0] for x in placed)
    indices = [index_tensor(x, case, device) for x in (case.cu_seqlens_q, case.cu_seqlens_kv)]
    longest = max(case.queries, default=0), max(case.keys, default=0)
    attn = {**options, "causal": variant.spec.causal}
    expected = reference.attention_varlen(
        as_numpy(q), as_numpy(k), as_numpy(v), case.cu_seqlens_q, case.cu_seqlens_kv, **attn
    )

    def launch(**arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = module.attention_varlen(q, k, v, *indices, *longest, **arguments)
        return o, lse

    return _judge(launch, variant, case, (q, k, v), options, expected)


def check_paged(module: ModuleType, variant: Variant, case: PackedCase, device: str) -> Verdict:
    """Run one paged kernel on one case and compare o and lse with the reference."""
    *numbers, options = packed_inputs(variant, case)
    dtype = TORCH_DTYPES[variant.spec.dtype]
    q, k, v = (x[0] for x in place((x[None] for x in numbers), dtype, device))
    table = block_table(case, device)
    k_cache, v_cache = caches(k, v, case)
    fill(k_cache, k, table, case)
    fill(v_cache, v, table, case)
    seqlens = index_tensor(np.array(case.keys, dtype=np.int32), case, device)
    cu_seqlens_q = index_tensor(case.cu_seqlens_q, case, device)
    attn = {**options, "causal": variant.spec.causal}
    expected = reference.attention_paged(
        as_numpy(q),
        as_numpy(k_cache),
        as_numpy(v_cache),
        table.cpu().numpy(),
        np.array(case.keys, dtype=np.int32),
        cu_seqlens_q=case.cu_seqlens_q,
        **attn,
    )

    def launch(**arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if set(case.queries) != {1}:
            arguments["cu_seqlens_q"] = cu_seqlens_q
        o, lse = module.attention_paged(q, k_cache, v_cache, table, seqlens, **arguments)
        return o, lse

    return _judge(launch, variant, case, (q, k, v), options, expected)


def index_tensor(x: np.ndarray, case: PackedCase, device: str) -> torch.Tensor:
    """Lengths on the device, between numbers that would be noticed."""
    dtype = torch.int64 if case.wide else torch.int32
    buffer = torch.full((len(x) + 2,), 2**27, dtype=dtype, device=device)
    buffer[1:-1] = torch.from_numpy(x)
    return buffer[1:-1]


def block_table(case: PackedCase, device: str) -> torch.Tensor:
    """The pages of each sequence in a shuffled order, with junk after them, and around the table.

    Pages 0 to 2 are left out: nothing of a sequence lies in them.
    """
    counts = [-(-keys // case.page_size) for keys in case.keys]
    pages = 3 + np.random.default_rng(len(counts)).permutation(sum(counts))
    columns = max(counts, default=0)
    dtype = torch.int64 if case.wide else torch.int32
    buffer = torch.tensor(JUNK, dtype=dtype, device=device).repeat(len(counts), columns // 4 + 2)
    table = buffer[:, 1 : columns + 1]
    for row, count in enumerate(counts):
        table[row, :count] = torch.from_numpy(pages[:count])
        pages = pages[count:]
    return table


def caches(k: torch.Tensor, v: torch.Tensor, case: PackedCase) -> tuple[torch.Tensor, torch.Tensor]:
    """A k and a v cache of NaN that the case's pages fit in."""
    num_pages = 4 + sum(-(-keys // case.page_size) for keys in case.keys)
    return CACHES[case.cache](k, v, (num_pages, case.page_size, case.heads_kv))


def _nhd(x: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    return x.new_full((*shape, x.shape[2]), torch.nan)


def _hnd(x: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    pages, slots, heads = shape
    return x.new_full((pages, heads, slots, x.shape[2]), torch.nan).transpose(1, 2)


def _interleaved(
    k: torch.Tensor, v: torch.Tensor, shape: tuple[int, int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    pages, slots, heads = shape
    columns = max(k.shape[2], v.shape[2])
    buffer = k.new_full((pages, 2, slots, heads, columns), torch.nan)
    return buffer[:, 0, ..., : k.shape[2]], buffer[:, 1, ..., : v.shape[2]]


def _apart(
    k: torch.Tensor, v: torch.Tensor, shape: tuple[int, int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    pages, slots, heads = shape
    return _hnd(k, shape), _nhd(v, (pages, slots + 1, heads + 1))[:, :slots, 1:]


CACHES: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "NHD": lambda k, v, shape: (_nhd(k, shape), _nhd(v, shape)),
    "HND": lambda k, v, shape: (_hnd(k, shape), _hnd(v, shape)),
    "interleaved": _interleaved,
    "v on its own": _apart,
}
"""How the pages of k and v lie in memory: in one buffer, by slots or by heads, each its own way."""


def fill(cache: torch.Tensor, rows: torch.Tensor, table: torch.Tensor, case: PackedCase) -> None:
    """Put every token of rows [total_kv, heads_kv, columns] in its slot of the cache."""
    for b, (first, keys) in enumerate(zip(case.cu_seqlens_kv, case.keys, strict=False)):
        token = torch.arange(keys, device=rows.device)
        page = table[b, token // case.page_size].long()
        cache[page, token % case.page_size] = rows[first : first + keys]


def _judge(
    launch: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    variant: Variant,
    case: PackedCase,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    options: dict[str, Any],
    expected: tuple[Any, Any],
) -> Verdict:
    """Launch, and hold the results to what is expected, within the budget of each sequence."""
    q, spec = tensors[0], variant.spec
    (out, *_), guard = guarded((1, *q.shape[:2], spec.head_dim_v), q.dtype, q.device.type)
    arguments = {**on_device(options, q.device.type), "out": out}
    o, lse, failures = called(lambda: launch(**arguments), out, q.shape[1::-1])
    o_bound, lse_bound, plain = (np.zeros(x.shape) for x in (expected[0], *expected[::-1]))
    for rows, (q_b, k_b, v_b), attn in _sequences(case, tensors, options):
        attn["causal"] = spec.causal
        rounding = {"operand_dtype": spec.dtype, "block_n": variant.config.block_n}
        (o_bound[rows],), (lse_bound[:, rows],) = error_budget(q_b, k_b, v_b, **rounding, **attn)
        (plain[rows],) = plain_attention(q_b, k_b, v_b, operand_dtype=spec.dtype, **attn)
    found = as_numpy(o), as_numpy(lse)
    verdict = compare(*found, *expected, o_bound, lse_bound, plain, out_dtype=spec.dtype)
    if not guard.isnan().all():
        failures.append("wrote beyond the rows of out")
    return replace(verdict, failures=(*failures, *verdict.failures))


def _sequences(
    case: PackedCase, tensors: tuple[torch.Tensor, ...], options: dict[str, Any]
) -> Iterator[tuple[slice, list[Any], dict[str, Any]]]:
    """Each sequence's query rows, its q, k and v as a batch of one, its part of the options."""
    q, k, v = (as_numpy(x) for x in tensors)
    bounds = zip(case.cu_seqlens_q, case.cu_seqlens_kv, case.queries, case.keys, strict=False)
    for b, (first_q, first_kv, queries, keys) in enumerate(bounds):
        rows, columns = slice(first_q, first_q + queries), slice(first_kv, first_kv + keys)
        attn = dict(options)
        if isinstance(offset := attn.get("causal_offset"), np.ndarray):
            attn["causal_offset"] = int(offset[b])
        if (slopes := attn.get("alibi_slopes")) is not None and slopes.ndim == 2:
            attn["alibi_slopes"] = slopes[b]
        yield rows, [q[None, rows], k[None, columns], v[None, columns]], attn
