"""Probes of the row softmax kernels beside the cases of `attngen.cases_softmax`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from far_probes import FAR, apart
from probes import failed_checks, launched, probe
from triton.runtime.errors import InterpreterError

from attngen.bounds import OutOfBounds
from attngen.variant import Variant
from attngen.verify_attention import TORCH_DTYPES
from attngen.verify_softmax import numpy_of, verdict_of


def _normal(variant: Variant, *shape: int) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.manual_seed(0))
    return x.to(TORCH_DTYPES[variant.spec.dtype])


def _options(variant: Variant, x: torch.Tensor) -> dict[str, Any]:
    """A mask and a factor where the kernel wants them."""
    spec = variant.spec
    options: dict[str, Any] = {"mask": torch.arange(x.shape[-1]) % 4 > 0} if spec.mask else {}
    return options | ({"scale": 1.5, "temperature": 2.0} if spec.scaled else {})


def hold(
    module: ModuleType, variant: Variant, x: torch.Tensor, out: torch.Tensor | None = None
) -> set[str]:
    """Run a kernel on a tensor of any layout and compare it with the reference."""
    options = _options(variant, x)
    exact = numpy_of(x)
    found = module.softmax(x, **options, out=out)
    y, lse = found if variant.spec.lse else (found, None)
    arrays = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    lse = None if lse is None else numpy_of(lse)
    return failed_checks(verdict_of(variant, exact, numpy_of(y), lse, arrays))


@probe("out in wider rows than x")
def wider_out(module: ModuleType, variant: Variant) -> set[str]:
    x = _normal(variant, 7, 37)
    buffer = torch.full((9, 61), torch.nan, dtype=x.dtype)
    out = buffer[1:8, 3:40]
    checks = hold(module, variant, x, out)
    out.fill_(torch.nan)
    return checks if buffer.isnan().all() else checks | {"rows around out"}


@probe("out of rows as given")
def given_out(module: ModuleType, variant: Variant) -> set[str]:
    x = _normal(variant, 3, 37)
    out = torch.full_like(x, torch.nan)
    found = module.softmax(x, **_options(variant, x), out=out)
    y = found[0] if variant.spec.lse else found
    return set() if y is out and not out.isnan().any() else {"given out"}


@probe("the grid of 70000 rows")
def many_rows(module: ModuleType, variant: Variant) -> set[str]:
    x = torch.empty((70000, 3), dtype=TORCH_DTYPES[variant.spec.dtype])
    grids = launched(module, lambda: module.softmax(x, **_options(variant, x))).grids
    fine = len(grids) == 1 and all(axis <= 65535 for axis in grids[0][1:])
    return set() if fine else {"grid"}


@probe("rows that are longer than the bucket")
def too_long(module: ModuleType, variant: Variant) -> set[str]:
    x = _normal(variant, 2, variant.spec.columns + 1)
    try:
        launched(module, lambda: module.softmax(x, **_options(variant, x)))
    except ValueError as error:
        return set() if str(error).startswith("x: got rows of") else {"refusal"}
    return {"refusal"}


@probe("out whose rows are one and the same")
def one_row_of_out(module: ModuleType, variant: Variant) -> set[str]:
    x = _normal(variant, 3, 37)
    out = torch.empty_like(x)[:1].expand(3, -1)
    try:
        launched(module, lambda: module.softmax(x, **_options(variant, x), out=out))
    except ValueError as error:
        return set() if str(error).startswith("out: got strides") else {"refusal"}
    return {"refusal"}


def _far(name: str, shape: tuple[int, int], dimension: int, distance: int) -> str:
    """A probe whose x and out have a dimension's indices a distance apart."""

    def held(module: ModuleType, variant: Variant) -> set[str]:
        x = apart(_normal(variant, *shape), dimension, distance)
        out = apart(torch.full(shape, torch.nan, dtype=x.dtype), dimension, distance)
        try:
            wrong = bool(hold(module, variant, x, out))
        except InterpreterError as error:
            wrong = isinstance(error.__cause__, OutOfBounds)
        return {"wrong address"} if wrong else set()

    probe(name)(held)
    return name


FAR_ROWS = frozenset(
    {
        _far("rows of x 2**25 apart", (66, 3), 0, FAR),
        _far("columns of x 2**25 apart", (1, 64), 1, 3 * FAR // 2),
    }
)
"""The probes whose buffers are gigabytes, which have to stay untouched."""
