"""Row softmax kernels beside torch and a device copy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from attngen import finder, store
from attngen.bench_cell import Cell
from attngen.spec_softmax import MOST_SINGLE, Softmax, SoftmaxTopk
from attngen.timing import TORCH_DTYPES, Call
from attngen.variant import Variant, parse

SIZES = (2**24, 2**28)
"""Bytes of x: one that the cache of a large GPU holds, and one that it does not."""
COLUMNS = tuple(2**i for i in range(7, 19))
LONG_ROWS = ((1, 2**20), (8, 2**20), (64, 2**18))
TOPK_SHAPE, TOPK_K = (4096, 131072), 5


def cells(dtypes: Iterable[str], backend: str) -> Iterator[Cell]:
    """Softmax by row length: TB/s of one read and one write, whatever a kernel reads.

    The peer is torch.softmax, the bound a copy of x; each call writes into the same out.
    """
    for dtype in dtypes:
        itemsize = TORCH_DTYPES[dtype].itemsize
        shapes = [(n // itemsize // columns, columns) for n in SIZES for columns in COLUMNS]
        for shape in (*shapes, (16384, 8192), *LONG_ROWS):
            yield _cell(dtype, shape)


def _cell(dtype: str, shape: tuple[int, int]) -> Cell:
    x = torch.randn(shape, device="cuda", dtype=TORCH_DTYPES[dtype])
    out = torch.empty_like(x)
    return Cell(
        _spec(dtype, shape[1]),
        {"rows": shape[0], "columns": shape[1]},
        "tbps",
        2.0 * x.nbytes,
        kernels={variant.name: _softmax(variant, x, out) for variant in _built(dtype, shape[1])},
        peers=lambda: {"torch": lambda: torch.softmax(x, -1, out=out)},
        bounds={"copy": lambda: out.copy_(x)},
    )


def _spec(dtype: str, columns: int) -> Softmax:
    """What is asked for: whole rows on the chip, as far as they fit."""
    single = columns <= MOST_SINGLE
    return Softmax(columns=columns, dtype=dtype, single=single, online=not single)


def topk_cells(dtypes: Iterable[str], backend: str) -> Iterator[Cell]:
    """Softmax with top-k, TB/s of one read; the peer is torch's softmax and then its topk."""
    for dtype in dtypes:
        x = torch.randn(TOPK_SHAPE, device="cuda", dtype=TORCH_DTYPES[dtype])
        spec = SoftmaxTopk(columns=TOPK_SHAPE[1], k=TOPK_K, dtype=dtype)
        kernels = {
            variant.name: _topk(variant, x)
            for variant in _variants()
            if isinstance(variant.spec, SoftmaxTopk)
            and variant.spec.dtype == dtype
            and variant.spec.k >= TOPK_K
        }
        yield Cell(
            spec,
            {"rows": TOPK_SHAPE[0], "columns": TOPK_SHAPE[1]},
            "tbps",
            float(x.nbytes),
            kernels=kernels,
            peers=_topk_peers(x),
        )


def _topk_peers(x: torch.Tensor) -> Callable[[], dict[str, Call]]:
    return lambda: {"torch": lambda: torch.topk(torch.softmax(x, -1), TOPK_K)}


def _variants() -> list[Variant]:
    names = {name for folder in store.search_path() for name in store.names(folder)}
    return [parse(name) for name in sorted(names)]


def _built(dtype: str, columns: int) -> list[Variant]:
    """The kernels of plain softmax for rows of this length; of `single` the narrowest that fit."""
    variants = [
        variant
        for variant in _variants()
        if isinstance(variant.spec, Softmax)
        and variant.spec.dtype == dtype
        and variant.spec.switched_on == (variant.spec.algorithm,)
    ]
    widths = [v.spec.columns for v in variants if v.spec.single and v.spec.columns >= columns]
    narrowest = min(widths, default=0)
    return [v for v in variants if not v.spec.single or v.spec.columns == narrowest]


def _softmax(variant: Variant, x: torch.Tensor, out: torch.Tensor) -> Call:
    module = finder.load(variant.name)
    return lambda: module.softmax(x, out=out)


def _topk(variant: Variant, x: torch.Tensor) -> Call:
    module = finder.load(variant.name)
    return lambda: module.softmax_topk(x, TOPK_K)
