"""Probes of addresses: tensors with room around them, and offsets that need more than 32 bits.

The latter are views of buffers of which only a few pages are touched. An offset that wraps leads
out of the launch's tensors or into another of them, as the system has placed them: one check.
"""

from __future__ import annotations

from types import ModuleType

import torch
from probes import Probe, drawn, hold, probe
from triton.runtime.errors import InterpreterError

from attngen.bounds import OutOfBounds
from attngen.cases_attention import Case
from attngen.variant import Variant

FAR = 2**25
ROOM = 2**14


def _roomy(x: torch.Tensor) -> torch.Tensor:
    """The same numbers with room before and after them that belongs to no tensor."""
    buffer = torch.full((x.numel() + 2 * ROOM,), torch.nan, dtype=x.dtype)
    return buffer[ROOM : ROOM + x.numel()].view(x.shape).copy_(x)


def _with_room(name: str, case: Case) -> Probe:
    def held(module: ModuleType, variant: Variant) -> set[str]:
        (q, k, v), options = drawn(variant, case)
        out = _roomy(torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype))
        return hold(module, variant, (_roomy(q), _roomy(k), _roomy(v)), out, **options)

    return probe(name)(held)


_with_room("room around the tensors", Case("roomy", 3, 19, heads_q=4, heads_kv=2))
_with_room("room around 12 heads", Case("12 heads", 19, 19, heads_q=12, heads_kv=12))
_with_room("room around two heads", Case("two heads", 19, 19))


def _far(
    name: str, case: Case, kv: tuple[int, int] | None = None, queries: tuple[int, int] | None = None
) -> str:
    """A probe whose k and v, or q and out, have a dimension's indices a distance apart."""

    def held(module: ModuleType, variant: Variant) -> set[str]:
        (q, k, v), options = drawn(variant, case)
        out = torch.full_like(q, torch.nan)
        if kv:
            k, v = apart(k, *kv), apart(v, *kv)
        if queries:
            q, out = apart(q, *queries), apart(out, *queries)
        try:
            wrong = bool(hold(module, variant, (q, k, v), out, **options))
        except InterpreterError as error:
            wrong = isinstance(error.__cause__, OutOfBounds)
        return {"wrong address"} if wrong else set()

    probe(name)(held)
    return name


def apart(x: torch.Tensor, dimension: int, distance: int) -> torch.Tensor:
    """The same numbers with `distance` elements from one index of a dimension to the next."""
    strides = list(x.stride())
    strides[dimension] = distance
    last = sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
    buffer = torch.empty(last + 1, dtype=x.dtype)
    return buffer.as_strided(x.shape, strides).copy_(x)


FAR_PROBES = frozenset(
    {
        _far(
            "rows of k and v 2**25 apart",
            Case("far keys", 66, 66, heads_q=1),
            kv=(1, FAR),
        ),
        _far(
            "rows of q and out 2**25 apart",
            Case("far queries", 66, 3, heads_q=1),
            queries=(1, FAR),
        ),
        _far(
            "sequences 2**30 apart",
            Case("far sequences", 1, 3, batch=4, heads_q=1),
            kv=(0, 2**30),
        ),
        _far(
            "heads 2**30 apart",
            Case("far heads", 1, 3, heads_q=4, heads_kv=4),
            kv=(2, 2**30),
        ),
    }
)
"""The probes whose buffers are gigabytes, which have to stay untouched."""
