"""Probes that run in a process of their own: what they look for may end it.

Offsets that need more than 32 bits are made with buffers of which only a few pages are touched.
"""

from __future__ import annotations

import ctypes
import mmap
from types import ModuleType

import torch
from probes import drawn, failed_checks, hold, probe

from attngen import verify
from attngen.cases import Case
from attngen.variant import Variant

FAR = 2**25
PROT_NONE = 0


def fenced(x: torch.Tensor) -> torch.Tensor:
    """The same numbers at the end of a mapping; the page after them may not be touched."""
    size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    fence = ctypes.c_void_p(address + size)
    assert libc.mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    flat = torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=size - x.nbytes)
    return flat.view(x.shape).copy_(x)


@probe("memory that ends with the tensors")
def at_the_fence(module: ModuleType, variant: Variant) -> set[str]:
    """k, v, q and out of lengths that fill no tile, each at the end of mapped memory."""
    (q, k, v), options = drawn(variant, Case("fenced", 3, 19, heads_q=4, heads_kv=2))
    out = fenced(torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype))
    return hold(module, variant, (fenced(q), fenced(k), fenced(v)), out, **options)


@probe("12 heads, isolated")
def twelve_heads(module: ModuleType, variant: Variant) -> set[str]:
    case = Case("12 heads", 19, 19, heads_q=12, heads_kv=12)
    (q, k, v), options = drawn(variant, case)
    out = fenced(torch.empty_like(q))
    return hold(module, variant, (fenced(q), fenced(k), fenced(v)), out, **options)


@probe("two heads and a tail, isolated")
def two_heads(module: ModuleType, variant: Variant) -> set[str]:
    return failed_checks(verify.check(module, variant, Case("two heads", 19, 19), "cpu"))


def _apart(x: torch.Tensor, dimension: int, distance: int) -> torch.Tensor:
    """The same numbers with `distance` elements from one index of a dimension to the next."""
    strides = list(x.stride())
    strides[dimension] = distance
    last = sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
    buffer = torch.empty(last + 1, dtype=x.dtype)
    return buffer.as_strided(x.shape, strides).copy_(x)


@probe("rows of k and v 2**25 apart")
def far_keys(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("far keys", 66, 66, heads_q=1))
    return hold(module, variant, (q, _apart(k, 1, FAR), _apart(v, 1, FAR)), **options)


@probe("rows of q and out 2**25 apart")
def far_queries(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("far queries", 66, 3, heads_q=1))
    out = _apart(torch.full_like(q, torch.nan), 1, FAR)
    return hold(module, variant, (_apart(q, 1, FAR), k, v), out, **options)


@probe("sequences 2**30 apart")
def far_sequences(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("far sequences", 1, 3, batch=4, heads_q=1))
    return hold(module, variant, (q, _apart(k, 0, 2**30), _apart(v, 0, 2**30)), **options)


@probe("heads 2**30 apart")
def far_heads(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("far heads", 1, 3, heads_q=4, heads_kv=4))
    return hold(module, variant, (q, _apart(k, 2, 2**30), _apart(v, 2, 2**30)), **options)


ISOLATED = (
    "memory that ends with the tensors",
    "12 heads, isolated",
    "two heads and a tail, isolated",
    "rows of k and v 2**25 apart",
    "rows of q and out 2**25 apart",
    "sequences 2**30 apart",
    "heads 2**30 apart",
)
