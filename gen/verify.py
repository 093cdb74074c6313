"""Run generated kernels and hold them to the reference: on the GPU, or in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from attngen import runtime, store
from attngen.bounds import OutOfBounds
from attngen.cases import Case, Floats, cases, inputs
from attngen.reference import attention, error_budget
from attngen.reference.checks import Verdict, compare, plain_attention
from attngen.variant import Variant, parse

TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Report:
    """What the checks said of one kernel.

    Attributes:
        name: the kernel.
        verdicts: by the case's name, in the order they ran.
    """

    name: str
    verdicts: dict[str, Verdict]

    @property
    def failed(self) -> bool:
        """Did any check fail on any case?"""
        return not all(verdict.passed for verdict in self.verdicts.values())

    def as_dict(self) -> dict[str, Any]:
        """The report for a program to read."""
        verdicts = {case: asdict(verdict) for case, verdict in self.verdicts.items()}
        return {"name": self.name, "failed": self.failed, "cases": verdicts}

    def __str__(self) -> str:
        """The worst elements beside their budgets, and every failure in words."""
        lines = [
            f"{'FAIL' if self.failed else 'ok  '} {self.name}: {len(self.verdicts)} cases",
            f"     worst o, in {self._worst('o')}",
            f"     worst lse, in {self._worst('lse')}",
            f"     against plain attention: {_ratio(self.verdicts, 'row_ratio')} of the largest"
            f" error allowed a row, {_ratio(self.verdicts, 'rms_ratio')} of the RMS a head",
        ]
        for case, verdict in self.verdicts.items():
            lines += [f"     {case}: {failure}" for failure in verdict.failures]
        return "\n".join(lines)

    def _worst(self, output: str) -> str:
        case, verdict = max(
            self.verdicts.items(), key=lambda item: float(getattr(item[1], output).ratio)
        )
        return f'"{case}": {getattr(verdict, output)}'


@dataclass(frozen=True)
class Skipped:
    """A kernel that cannot run here, and why.

    Attributes:
        name: the kernel.
        reason: in words.
    """

    name: str
    reason: str
    failed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The report for a program to read."""
        return asdict(self)

    def __str__(self) -> str:
        """One line."""
        return f"skip {self.name}: {self.reason}"


def _ratio(verdicts: dict[str, Verdict], name: str) -> str:
    ratios = [r for verdict in verdicts.values() if (r := getattr(verdict, name)) is not None]
    return f"{max(ratios):.2f}" if ratios else "none"


def reports(
    variants: Iterable[Variant] | None, folder: Path | None, device: str
) -> Iterator[Report | Skipped]:
    """Hold built kernels to the reference.

    Args:
        variants: which; all that are built where they are not given.
        folder: where they are; the folders that `attngen.load` looks in where it is not given.
        device: "cuda", or "cpu" under Triton's interpreter.

    Raises:
        NotGenerated: for a variant that is not built.
    """
    folders = [folder] if folder else store.search_path()
    if variants is None:
        variants = [parse(name) for place in folders for name in store.names(place)]
    for variant in variants:
        module = runtime.load(variant.name, folders)
        reason = runtime.cannot_run(variant, device)
        yield Skipped(variant.name, reason) if reason else verify(module, variant, device)


def verify(
    module: ModuleType, variant: Variant, device: str, chosen: Iterable[Case] | None = None
) -> Report:
    """Hold one kernel to the reference on every case.

    Args:
        module: the generated module.
        variant: what it claims to be.
        device: "cuda", or "cpu" under Triton's interpreter.
        chosen: the cases; those of the table where they are not given.
    """
    if chosen is None:
        chosen = cases(variant, long=device != "cpu")
    verdicts = {case.name: check(module, variant, case, device) for case in chosen}
    return Report(variant.name, verdicts)


def check(module: ModuleType, variant: Variant, case: Case, device: str) -> Verdict:
    """Run one kernel on one case and compare o and lse with the reference, element by element."""
    spec = variant.spec
    *numbers, options = inputs(variant, case)
    q, k, v = place(numbers, TORCH_DTYPES[spec.dtype], device, fused=case.fused)
    out, guard = _guarded((*q.shape[:3], spec.head_dim_v), q.dtype, device)
    failures = []
    try:
        with _nan_filled_outputs():
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


@contextmanager
def _nan_filled_outputs() -> Iterator[None]:
    """What a launcher allocates begins as NaN, so that a row that is never written shows."""

    def new_nan(self: torch.Tensor, *size: Any, **options: Any) -> torch.Tensor:
        tensor = allocate(self, *size, **options)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    allocate = torch.Tensor.new_empty
    torch.Tensor.new_empty = new_nan  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.new_empty = allocate  # type: ignore[method-assign]


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
