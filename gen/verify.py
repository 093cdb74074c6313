"""Run generated kernels and hold them to the reference: on the GPU, or in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attngen import (
    cases_attention,
    cases_decode,
    cases_layouts,
    cases_merge,
    cases_softmax,
    finder,
    store,
    verify_attention,
    verify_decode,
    verify_layouts,
    verify_merge,
    verify_softmax,
)
from attngen.reference.checks import Verdict
from attngen.variant import Variant, parse

Check = Callable[[ModuleType, Variant, Any, str], Verdict]
Cases = Callable[..., Iterable[Any]]

OPS: dict[str, tuple[Cases, Check]] = {
    "attention_fwd": (cases_attention.cases, verify_attention.check),
    "attention_decode": (cases_decode.cases, verify_decode.check),
    "attention_varlen": (cases_layouts.varlen_cases, verify_layouts.check_varlen),
    "attention_paged": (cases_layouts.paged_cases, verify_layouts.check_paged),
    "merge_state": (cases_merge.cases, verify_merge.check),
    "merge_states": (cases_merge.cases, verify_merge.check),
    "softmax": (cases_softmax.cases, verify_softmax.check),
    "softmax_topk": (cases_softmax.topk_cases, verify_softmax.check_topk),
}
"""By operator: its table of cases, and what holds a kernel to the reference on one of them."""


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
        ]
        row, head = _ratio(self.verdicts, "row_ratio"), _ratio(self.verdicts, "rms_ratio")
        if row or head:
            lines.append(
                f"     against the plain computation: {row or 'none'} of the largest error allowed"
                f" a row, {head or 'none'} of the RMS a head"
            )
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
    return f"{max(ratios):.2f}" if ratios else ""


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
        module = finder.load(variant.name, folders)
        reason = finder.cannot_run(variant, device)
        yield Skipped(variant.name, reason) if reason else verify(module, variant, device)


def verify(
    module: ModuleType,
    variant: Variant,
    device: str,
    chosen: Iterable[Any] | None = None,
    *,
    long: bool | None = None,
) -> Report:
    """Hold one kernel to the reference on every case.

    Args:
        module: the generated module.
        variant: what it claims to be.
        device: "cuda", or "cpu" under Triton's interpreter.
        chosen: the cases; those of the table where they are not given.
        long: are the long ones of the table among them? On a GPU they are, unless it is said.
    """
    cases, check = OPS[variant.spec.op]
    if chosen is None:
        chosen = cases(variant, long=device != "cpu" if long is None else long)
    verdicts = {case.name: check(module, variant, case, device) for case in chosen}
    return Report(variant.name, verdicts)
