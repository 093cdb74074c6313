"""Run an attention kernel on a case and hold o and lse to the reference, element by element."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from attngen.bounds import OutOfBounds
from attngen.cases_attention import Case, Floats, inputs
from attngen.outputs import nan_filled_outputs
from attngen.reference import attention, error_budget
from attngen.reference.checks import Verdict, compare, plain_attention
from attngen.variant import Variant

TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def check(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one kernel on one case and compare o and lse with the reference, element by element."""
    spec = variant.spec
    *numbers, options = inputs(variant, case)
    q, k, v = place(numbers, TORCH_DTYPES[spec.dtype], device, fused=case.fused)
    out, guard = _guarded((*q.shape[:3], spec.head_dim_v), q.dtype, device)
    failures = []
    try:
        with nan_filled_outputs():
            o, lse = module.attention_fwd(q, k, v, **_on_device(options, device), out=out)
    except InterpreterError as error:
        if not isinstance(error.__cause__, OutOfBounds):
            raise
        failures.append(str(error.__cause__))
        o, lse = out, out.new_full((q.shape[0], q.shape[2], q.shape[1]), torch.nan)
    exact = [_numpy(x) for x in (q, k, v)]
    attn = {**options, "causal": spec.causal}
    expected = attention(*exact, **attn)
    bounds = error_budget(*exact, operand_dtype=spec.dtype, block_n=variant.config.block_n, **attn)
    plain = plain_attention(*exact, operand_dtype=spec.dtype, **attn)
    verdict = compare(_numpy(o), _numpy(lse), *expected, *bounds, plain, out_dtype=spec.dtype)
    failures += verdict.failures
    if o is not out:
        failures.append("returned another tensor than out")
    if not guard.isnan().all():
        failures.append("wrote beyond the rows of out")
    return replace(verdict, failures=tuple(failures))


def place(
    numbers: Iterable[Floats], dtype: torch.dtype, device: str, *, fused: bool = False
) -> list[torch.Tensor]:
    """q, k and v [batch, seqlen, heads, columns] as tensors amid NaN, so that a stray read shows.

    With `fused` they are views of one buffer and share their strides.
    """
    tensors = [torch.from_numpy(x).to(dtype) for x in numbers]
    if not fused:
        placed = [_guarded(tuple(x.shape), dtype, device)[0] for x in tensors]
    else:
        batch = tensors[0].shape[0]
        rows = max(x.shape[1] for x in tensors) + 1
        heads, columns = sum(x.shape[2] for x in tensors), max(x.shape[3] for x in tensors)
        buffer = torch.full((batch, rows, heads, columns), torch.nan, dtype=dtype, device=device)
        placed, first = [], 0
        for x in tensors:
            placed.append(buffer[:, : x.shape[1], first : first + x.shape[2], : x.shape[3]])
            first += x.shape[2]
    for place_, x in zip(placed, tensors, strict=True):
        place_.copy_(x)
    return placed


def _guarded(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """A NaN-filled tensor [batch, seqlen, heads, columns], and the NaN rows around it."""
    batch, seqlen, heads, columns = shape
    buffer = torch.full((batch, seqlen + 2, heads, columns), torch.nan, dtype=dtype, device=device)
    return buffer[:, 1 : seqlen + 1], buffer[:, :: seqlen + 1]


def _on_device(options: dict[str, Any], device: str) -> dict[str, Any]:
    return {
        name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


def _numpy(x: torch.Tensor) -> Any:
    return x.double().cpu().numpy()
