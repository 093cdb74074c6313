"""Run a row softmax kernel on a case and hold its outputs to the reference, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from attngen.bounds import OutOfBounds
from attngen.cases_softmax import Case, inputs
from attngen.outputs import nan_filled_outputs
from attngen.reference import log_softmax, logits, logsumexp, safe_softmax
from attngen.reference import softmax_topk as topk_of
from attngen.reference.checks import Verdict, compare
from attngen.reference.rounding import round_to
from attngen.reference.softmax_budget import plain_softmax, softmax_budget
from attngen.spec_softmax import Softmax
from attngen.tiles_softmax import SHARE, row_block
from attngen.variant import Variant
from attngen.verify_attention import TORCH_DTYPES

STATES = 256
"""States that a program of `split` merges at once."""


def check(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one softmax kernel on one case and compare y and lse with the reference."""
    spec: Softmax = variant.spec
    numbers, options = inputs(variant, case)
    x, _ = placed(torch.from_numpy(numbers).to(TORCH_DTYPES[spec.dtype]), case.layout, device)
    blank = torch.full(case.shape, torch.nan, dtype=TORCH_DTYPES[spec.out_dtype])
    # A layout that does not fold is refused for out: there the launcher copies x alone.
    out, guard = placed(blank, "rows" if len(case.shape) > 3 else case.layout, device)
    failures, found = _run(lambda: module.softmax(x, **_on_device(options, device), out=out))
    y, lse = found if isinstance(found, tuple) else (found, None)
    if found is None:
        y = out
    elif y is not out:
        failures.append("returned another tensor than out")
    verdict = verdict_of(
        variant, numpy_of(x), numpy_of(y), None if lse is None else numpy_of(lse), options
    )
    if found is None and spec.lse:
        failures.append("gave no lse")
    if not guard().isnan().all():
        failures.append("wrote beyond the rows of out")
    return replace(verdict, failures=(*failures, *verdict.failures))


def verdict_of(variant: Variant, x: Any, y: Any, lse: Any, options: dict[str, Any]) -> Verdict:
    """Hold y and lse (None where the kernel gives none) to the reference of x, in numpy."""
    spec: Softmax = variant.spec
    s = logits(x, **options)
    expected = _in_range((log_softmax if spec.log else safe_softmax)(s), spec.out_dtype)
    expected_lse = _in_range(logsumexp(s), "fp32")
    how = roundings(variant, x.shape[-1])
    bounds = softmax_budget(x, out_dtype=spec.out_dtype, log=spec.log, **how, **options)
    plain = plain_softmax(x, out_dtype=spec.out_dtype, log=spec.log, **options)
    as_rows = [
        a.reshape(math.prod(x.shape[:-1]), 1, x.shape[-1]) for a in (y, expected, bounds[0], plain)
    ]
    return compare(
        as_rows[0],
        expected_lse if lse is None else lse,
        as_rows[1],
        expected_lse,
        as_rows[2],
        bounds[1],
        as_rows[3],
        out_dtype=spec.out_dtype,
    )


def _in_range(x: Any, dtype: str) -> Any:
    """The same numbers, infinite where they are beyond what the type holds."""
    return np.where(np.isinf(round_to(x, dtype)), np.copysign(np.inf, x), x)


def check_topk(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one top-k kernel on one case; values and indices have to match exactly."""
    spec = variant.spec
    numbers, options = inputs(variant, case)
    x, _ = placed(torch.from_numpy(numbers).to(TORCH_DTYPES[spec.dtype]), case.layout, device)
    failures, found = _run(lambda: module.softmax_topk(x, **options))
    exact = numpy_of(x)
    k = options["k"]
    values, indices, y = topk_of(exact, k) if k else (np.zeros((*case.shape[:-1], 0)),) * 3
    bound, _ = softmax_budget(exact, out_dtype="fp32", **roundings(variant, exact.shape[-1]))
    room = [(0, 0)] * (exact.ndim - 1) + [(0, 1)]
    bound = np.take_along_axis(np.pad(bound, room), indices.astype(np.int64), axis=-1)
    got = [np.full(y.shape, np.nan)] * 3 if found is None else [numpy_of(a) for a in found]
    for name, a, b in (("values", got[0], values), ("indices", got[1], indices)):
        wrong = np.count_nonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))
        if wrong:
            failures.append(f"exact: {wrong} of {a.size} {name} are not the reference's")
    rows = math.prod(case.shape[:-1])
    p, y, bound = (a.reshape(rows, 1, k) for a in (got[2], y, bound))
    none = np.zeros(rows)
    verdict = compare(p, none, y, none, bound, none, out_dtype="fp32")
    return replace(verdict, failures=(*failures, *verdict.failures))


def roundings(variant: Variant, columns: int) -> dict[str, Any]:
    """What the budget has to know of a kernel's sum: its additions and rescales.

    A thread adds up to SHARE terms of a tile one after the other, then the threads' sums are added
    as a tree; a step of a loop adds one more, and where the maximum may grow rescales once.
    """
    spec, config = variant.spec, variant.config
    if isinstance(spec, Softmax) and spec.single:
        return {"additions": SHARE + _depth(row_block(spec)), "rescales": 0}
    steps = math.ceil(columns / config.block_n)
    if isinstance(spec, Softmax) and spec.split:
        merges = math.ceil(steps / STATES) + 1
        return {"additions": SHARE + _depth(config.block_n * STATES) + merges, "rescales": merges}
    additions = SHARE + _depth(config.block_n) + steps
    return {"additions": additions, "rescales": 0 if getattr(spec, "safe", False) else steps + 1}


def _depth(n: int) -> int:
    return math.ceil(math.log2(max(n, 1)))


def _run(call: Callable[[], Any]) -> tuple[list[str], Any]:
    """What a launcher returns, its own outputs NaN before; None where an address was refused."""
    try:
        with nan_filled_outputs():
            return [], call()
    except InterpreterError as error:
        if not isinstance(error.__cause__, OutOfBounds):
            raise
        return [str(error.__cause__)], None


def placed(
    x: torch.Tensor, layout: str, device: str
) -> tuple[torch.Tensor, Callable[[], torch.Tensor]]:
    """A tensor in a layout, amid NaN, and what gives the NaN around it.

    Args:
        x: [..., n].
        layout: "rows" one after the other, "padded" rows with room between them, "swapped" leading
            dimensions that are stored the other way round, or "columns" that are apart.
        device: "cuda" or "cpu".
    """
    order = list(range(x.dim()))
    if layout == "swapped":
        order[:-1] = order[-2::-1]
    stored = [x.shape[d] for d in order]
    step, room = 2 if layout == "columns" else 1, 3 if layout == "padded" else 0
    sizes = [*stored[:-1], stored[-1] * step + room]
    inside = [slice(None)] * (x.dim() - 1) + [slice(0, stored[-1] * step, step)]
    if x.dim() > 1:
        sizes[0] += 2
        inside[0] = slice(1, stored[0] + 1)
    buffer = torch.full(sizes, torch.nan, dtype=x.dtype, device=device)
    view = buffer[tuple(inside)].permute([order.index(d) for d in range(x.dim())])
    view.copy_(x)

    def around() -> torch.Tensor:
        rest = buffer.clone()
        rest[tuple(inside)] = torch.nan
        return rest

    return view, around


def _on_device(options: dict[str, Any], device: str) -> dict[str, Any]:
    return {
        name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


def numpy_of(x: torch.Tensor) -> Any:
    """A tensor's numbers in float64."""
    return x.double().cpu().numpy()
