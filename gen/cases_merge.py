"""The inputs that merge kernels are verified on: tile edges, empty states, hard values, strides.

One table serves `attngen verify` and the tests.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attngen.spec_merge import Merge, MergeStates
from attngen.variant import Variant

Floats = NDArray[np.float32]
LARGEST = {"fp16": 65504.0, "bf16": float(2.0**127 * (2 - 2**-7)), "fp32": float(2**128 - 2**104)}


@dataclass(frozen=True)
class Case:
    """One call of a merge kernel.

    Attributes:
        name: what it is about.
        tokens: of each sequence.
        heads: of each token.
        states: how many; 2 for merge_state. Of a ragged kernel, the longest list's.
        batch: sizes of the batch dimensions.
        family: how o and lse are drawn; a key of FAMILIES.
        layout: of every lse.
        strided: do no two tensors have the same strides, and none the contiguous ones?
        in_place: "a" or "b" where the outputs are that state's tensors.
        context: prefill_tokens_with_context.
        return_lse: is lse wanted?
    """

    name: str
    tokens: int
    heads: int
    states: int = 2
    batch: tuple[int, ...] = ()
    family: str = "normal"
    layout: str = "ht"
    strided: bool = False
    in_place: str = ""
    context: int | None = None
    return_lse: bool = True


def cases(variant: Variant, *, long: bool = False) -> Iterator[Case]:
    """The cases for a kernel; `long` adds the sizes that only a GPU gets through."""
    m = variant.config.block_m
    yield Case("one row", 1, 1)
    yield Case("whole tiles", m, 2)
    yield Case("one row short of a tile", m - 1, 1)
    yield Case("one row past a tile", m + 1, 1)
    yield Case("three heads, th", 5, 3, layout="th")
    yield Case("as many heads as tokens", 4, 4)
    yield Case("empty states", 12, 5, family="empties")
    yield Case("empty states, th", 12, 5, family="empties", layout="th")
    yield Case("NaN lse", 7, 3, family="nan")
    yield Case("one lse far above", 9, 3, family="far")
    yield Case("lse a little apart", 9, 3, family="apart")
    yield Case("equal lse", 5, 3, family="equal")
    yield Case("lse as large as they get", 5, 3, family="huge")
    yield Case("strided", 5, 3, strided=True)
    yield Case("strided, th, empty states", 7, 3, strided=True, layout="th", family="empties")
    yield Case("no tokens", 0, 3)
    yield Case("no heads", 3, 0)
    yield Case("no lse", 5, 3, return_lse=False)
    spec: Merge = variant.spec
    if spec.out_dtype in (spec.dtype, "fp32", "fp8"):
        yield Case("o as large as it gets", 9, 3, family="largest")
    if spec.out_fp8:
        yield Case("beyond the largest fp8", 9, 3, family="hundreds")
    if not isinstance(spec, MergeStates):
        yield from _cases_of_two(spec)
    else:
        for states in (0, 1, 3, 8, 17):
            yield Case(f"{states} states", 5, 3, states=states)
        yield Case("9 states, empty ones among them", 23, 3, states=9, family="empties")
        yield Case("empty states before full ones", 5, 3, states=19, family="late")
        yield Case("133 states, far apart", 2, 2, states=133, family="far")
        yield Case("256 states", 1, 2, states=256)
    if not getattr(spec, "ragged", False):
        yield Case("sequences", 5, 3, batch=(3,))
        yield Case("sequences, strided, th", 5, 3, batch=(3,), strided=True, layout="th")
        yield Case("sequences of one token", 1, 3, batch=(11,))
        yield Case("sequences that follow each other", 5, 3, batch=(3,), layout="th")
        yield Case("two batch dimensions", 3, 2, batch=(2, 3))
    if long:
        yield Case("many tokens", 4099, 32)
        yield Case("more heads than peers take", 33, 97, layout="th", family="empties")


def _cases_of_two(spec: Merge) -> Iterator[Case]:
    yield Case("some tokens without context", 9, 3, context=4)
    yield Case("no token with context", 5, 3, context=0)
    yield Case("empty states without context", 9, 3, context=4, family="empties")
    yield Case("sequences with tokens without context", 6, 3, batch=(2,), layout="th", context=4)
    if spec.out_dtype == spec.dtype:
        yield Case("in place of a", 13, 3, in_place="a", family="empties")
        yield Case("in place of b", 13, 3, in_place="b", context=7)


def inputs(variant: Variant, case: Case) -> tuple[Floats, Floats]:
    """Draw o [states, *batch, tokens, heads, head_dim] and lse [states, *batch, tokens, heads].

    The same on every machine, for every kernel of an operator, head dim and dtype.
    """
    spec: Merge = variant.spec
    seed = f"{spec.op} {spec.head_dim} {spec.dtype} {case.name}"
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    rows = (case.states, *case.batch, case.tokens, case.heads)
    o = rng.standard_normal((*rows, spec.head_dim), dtype=np.float32)
    lse = 3 * rng.standard_normal(rows, dtype=np.float32)
    FAMILIES[case.family](o, lse, rng, spec)
    return o, lse


Family = Callable[[Floats, Floats, np.random.Generator, Merge], None]


def _normal(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """Leave o and lse as they are drawn: unit normal, and three times that."""


def _empties(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """Half of the states are empty, in either spelling, with NaN or infinity in their o."""
    o[rng.random(o.shape) < 0.2] = -0.0
    empty = rng.random(lse.shape) < 0.5
    lse[empty] = np.where(rng.random(lse.shape) < 0.5, np.inf, -np.inf)[empty]
    o[empty] = np.where(rng.random(o.shape) < 0.5, np.nan, np.inf)[empty]


def _late(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """All states but the last two are empty: whole blocks of them, where lse is read in blocks."""
    lse[:-2], o[:-2] = -np.inf, np.nan


def _nan(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """Some lse are NaN, beside states that are full and states that are empty."""
    lse[rng.random(lse.shape) < 0.3] = np.inf
    lse[rng.random(lse.shape) < 0.3] = np.nan


def _far(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """One state outweighs all others beyond what float32 sees."""
    lse[:1] += 1e4


def _apart(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """The first state outweighs the others, whose o is the larger for it."""
    lse[:1] += 9
    o[1:] *= 1000


def _equal(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    lse[...] = -7.25


def _huge(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """The difference of two lse overflows, and no merged lse may."""
    lse[...] = np.where(rng.random(lse.shape) < 0.5, 3e38, -3e38)


def _largest(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    """In every second column the states agree; in the others they differ, but add up to more."""
    o[...] = np.copysign(LARGEST[spec.dtype], o[:1]).astype(np.float32)
    o[1:, ..., ::2] *= 0.75


def _hundreds(o: Floats, lse: Floats, rng: np.random.Generator, spec: Merge) -> None:
    o *= 300


FAMILIES: dict[str, Family] = {
    "normal": _normal,
    "empties": _empties,
    "late": _late,
    "nan": _nan,
    "far": _far,
    "apart": _apart,
    "equal": _equal,
    "huge": _huge,
    "largest": _largest,
    "hundreds": _hundreds,
}
"""Ways to draw o and lse."""
