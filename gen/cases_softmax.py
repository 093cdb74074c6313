"""The inputs that row softmax kernels are verified on: tile edges, hard values, odd layouts."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attngen.spec_softmax import Softmax
from attngen.variant import Variant

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One call of a softmax kernel, alone or with top-k.

    Attributes:
        name: what it is about.
        shape: of x, [..., n].
        family: how x is drawn; a key of FAMILIES.
        layout: how x and out are stored; a key of LAYOUTS.
        broadcast: is the mask one for all rows?
        options: scale and temperature, or k.
    """

    name: str
    shape: tuple[int, ...]
    family: str = "normal"
    layout: str = "rows"
    broadcast: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def cases(variant: Variant, *, long: bool = False) -> Iterator[Case]:
    """The cases for a kernel; `long` adds the sizes that only a GPU gets through."""
    spec: Softmax = variant.spec
    n = spec.columns if spec.single else variant.config.block_n
    few = min(n, 37)
    yield Case("one entry", (1, 1))
    yield Case("one entry a row", (9, 1))
    yield Case("a whole tile", (3, n))
    yield Case("one short of a tile", (5, max(n - 1, 1)))
    yield Case("a few columns", (19, few))
    if not spec.single:
        yield Case("one past a tile", (3, n + 1))
        yield Case("many tiles", (2, 5 * n + 7))
        yield Case("a late outlier", (3, 2 * n + 3), family="outlier")
        yield Case("a first tile of -inf", (2, 2 * n + 3), family="late")
    if spec.split and (long or n <= 64):
        yield Case("more parts than are merged at once", (1, 300 * n + 3))
    yield Case("no columns", (3, 0))
    yield Case("no rows", (0, few))
    yield Case("one dimension", (few,))
    yield Case("64 rows", (64, few))
    yield from _layouts(few)
    yield from _values(few)
    if spec.mask:
        yield Case("one mask for all rows", (2, 3, few), broadcast=True)
    if spec.scaled:
        for scale, temperature in ((-0.5, 2.0), (0.0, 1.0), (1.0, 0.1), (1e-40, 1.0)):
            options = {"scale": scale, "temperature": temperature}
            yield Case(
                f"scale {scale}, temperature {temperature}", (5, few), "holes", options=options
            )
    if long:
        yield Case("70000 rows", (70000, 3))
        yield Case("long rows", (5, spec.columns if spec.single else 2**20 + 7))


def topk_cases(variant: Variant, *, long: bool = False) -> Iterator[Case]:
    """The cases for a top-k kernel; `long` adds the sizes that only a GPU gets through."""
    n, k = variant.config.block_n, variant.spec.k
    yield Case("one entry", (1, 1), options={"k": 1})
    yield Case("fewer entries than k", (3, max(k - 1, 1)), options={"k": k})
    yield Case("as many entries as k", (3, k), options={"k": k})
    yield Case("a whole tile", (3, n), options={"k": k})
    yield Case("one past a tile", (3, n + 1), options={"k": k})
    yield Case("many tiles", (2, 3 * n + 7), options={"k": k})
    yield Case("ascending", (1, n + 7), family="ascending", options={"k": k})
    yield Case("ties across tiles", (2, n + 7), family="ties", options={"k": k})
    yield Case(
        "equal entries, then a larger one", (2, n + 7), family="one larger", options={"k": k}
    )
    yield Case("the largest one", (5, 37), options={"k": 1})
    yield Case("k of 0", (5, 37), options={"k": 0})
    yield Case("no columns", (3, 0), options={"k": k})
    yield Case("no rows", (0, 37), options={"k": k})
    for case in (*_layouts(37), *_values(37)):
        yield Case(case.name, case.shape, case.family, case.layout, options={"k": k})
    if long:
        yield Case("70000 rows", (70000, 3), options={"k": k})
        yield Case("long rows", (5, 2**20 + 7), options={"k": k})


def _layouts(few: int) -> Iterator[Case]:
    yield Case("rows apart", (7, few), layout="padded")
    yield Case("rows of a multiple of 8", (7, min(few, 24)))
    yield Case("two leading dimensions, swapped", (2, 3, few), layout="swapped")
    yield Case("three leading dimensions, swapped", (2, 3, 2, few), layout="swapped")
    yield Case("columns apart", (5, few), layout="columns")


def _values(few: int) -> Iterator[Case]:
    yield Case("scale 0.1", (5, few), family="small")
    yield Case("scale 10", (5, few), family="large")
    yield Case("equal entries", (5, few), family="equal")
    yield Case("very negative entries", (5, few), family="negative")
    yield Case("the most negative number", (2, few), family="lowest")
    yield Case("entries of 2**24", (3, few), family="huge")
    yield Case("entries of -inf", (7, few), family="holes")
    yield Case("rows of -inf", (5, few), family="empty")
    yield Case("+inf and NaN", (7, few), family="broken")


Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]


def _normal(scale: float) -> Draw:
    return lambda rng, shape: scale * rng.standard_normal(shape)


def _outlier(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    x = rng.standard_normal(shape)
    x[..., -1:] = 50.0
    return x


def _holes(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.where(rng.random(shape) < 0.5, -np.inf, rng.standard_normal(shape))


def _late(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Nothing but -inf before the last few columns."""
    x = rng.standard_normal(shape) - 1000.0
    x[..., : -(shape[-1] // 3) or 0] = -np.inf
    return x


def _empty(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    x = rng.standard_normal(shape)
    x[1::2] = -np.inf
    return x


def _broken(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Every second row holds one +inf, one NaN or both."""
    x = rng.standard_normal(shape)
    x[0, -1], x[2, 0], x[4, 0], x[4, -1] = np.inf, np.nan, np.nan, np.inf
    x[6, 1:] = -np.inf
    x[6, 0] = np.inf
    return x


def _huge(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Whole numbers just below the largest that the type holds exactly, some units apart."""
    return 2.0**24 - 2.0**17 * rng.integers(0, 4, shape)


FAMILIES: dict[str, Draw] = {
    "normal": _normal(1.0),
    "small": _normal(0.1),
    "large": _normal(10.0),
    "equal": lambda rng, shape: np.full(shape, 0.5),
    "negative": lambda rng, shape: rng.standard_normal(shape) - 300.0,
    "lowest": lambda rng, shape: np.full(shape, -math.inf),
    "huge": _huge,
    "outlier": _outlier,
    "holes": _holes,
    "late": _late,
    "empty": _empty,
    "broken": _broken,
    "ascending": lambda rng, shape: np.broadcast_to(np.arange(shape[-1]) // 8, shape),
    "one larger": lambda rng, shape: np.broadcast_to(np.arange(shape[-1]) == shape[-1] - 2, shape),
    "ties": lambda rng, shape: rng.integers(0, 3, shape),
}
_LOWEST = {"fp16": -65504.0, "bf16": -3.3895313892515355e38, "fp32": -3.4028234663852886e38}


def inputs(variant: Variant, case: Case) -> tuple[Floats, dict[str, Any]]:
    """The numbers x in float32, not yet rounded, and the options of the call, for one case.

    The same variant and case give the same numbers in every process.
    """
    rng = np.random.default_rng(zlib.crc32(f"{variant.name} {case.name}".encode()))
    spec = variant.spec
    x = np.array(FAMILIES[case.family](rng, case.shape), dtype=np.float32)
    if case.family == "lowest":
        x[...] = _LOWEST[spec.dtype]
    elif spec.dtype == "fp16":
        x = np.where(np.isfinite(x), np.clip(x, -65504.0, 65504.0), x)
    options = dict(case.options)
    if isinstance(spec, Softmax) and spec.mask:
        shape = case.shape[-1:] if case.broadcast else case.shape
        options["mask"] = rng.random(shape) < 0.7
    if isinstance(spec, Softmax) and spec.scaled:
        options = {"scale": 1.25, "temperature": 0.8} | options
    return x, options
