"""Time row softmax kernels beside torch and a device copy, in the way `attngen.bench` times."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from attngen import finder, store
from attngen.bench import TORCH_DTYPES, Call, speeds
from attngen.spec_softmax import Softmax, SoftmaxTopk
from attngen.variant import Variant, parse

SIZES = (2**24, 2**28)
"""Bytes of x: one that the cache of a large GPU holds, and one that it does not."""
COLUMNS = tuple(2**i for i in range(7, 19))
LONG_ROWS = ((1, 2**20), (8, 2**20), (64, 2**18))
TOPK_SHAPE, TOPK_K = (4096, 131072), 5


def rows(dtypes: Iterable[str], backend: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Records of the results format for softmax by row length: TB/s of one read and one write.

    A kernel that reads a row twice or thrice is counted as if it read it once. The peers are
    torch.softmax and a device copy of x; each call writes into the same out.
    """
    for dtype in dtypes:
        itemsize = TORCH_DTYPES[dtype].itemsize
        shapes = [(n // itemsize // columns, columns) for n in SIZES for columns in COLUMNS]
        for shape in (*shapes, (16384, 8192), *LONG_ROWS):
            x = torch.randn(shape, device="cuda", dtype=TORCH_DTYPES[dtype])
            out = torch.empty_like(x)
            kernels = {
                variant.name: _softmax(variant, x, out) for variant in _built(dtype, shape[1])
            }
            peers = {"torch": _torch(x, out), "copy": _copy(x, out)}
            if kernels:
                yield _record("softmax", dtype, shape, 2 * x.nbytes, kernels, peers, rounds)
            _release()


def topk(dtypes: Iterable[str], backend: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Records for softmax with top-k, TB/s of one read; the peer is torch's softmax and topk."""
    for dtype in dtypes:
        x = torch.randn(TOPK_SHAPE, device="cuda", dtype=TORCH_DTYPES[dtype])
        kernels = {
            variant.name: _topk(variant, x)
            for variant in _variants()
            if isinstance(variant.spec, SoftmaxTopk)
            and variant.spec.dtype == dtype
            and variant.spec.k >= TOPK_K
        }
        peers = {"torch": _torch_topk(x)}
        if kernels:
            yield _record("softmax_topk", dtype, TOPK_SHAPE, x.nbytes, kernels, peers, rounds)
        _release()


def _record(
    op: str,
    dtype: str,
    shape: tuple[int, int],
    moved: int,
    kernels: dict[str, Call],
    peers: dict[str, Call],
    rounds: int,
) -> dict[str, Any]:
    found = speeds({**kernels, **peers}, moved, rounds)
    medians = {name: statistics.median(values) for name, values in found.items()}
    best = max((name for name in kernels if name in medians), key=medians.__getitem__)
    best_peer = max((name for name in peers if name in medians), key=medians.__getitem__)
    ratios = [a / b for a, b in zip(found[best], found[best_peer], strict=True)]
    return {
        "op": op,
        "variant": best,
        "dtype": dtype,
        "shape": {"rows": shape[0], "columns": shape[1]},
        "causal": False,
        "metric": "tbps",
        "value": round(medians[best], 3),
        "peers": {name: round(medians[name], 3) for name in peers if name in medians},
        "best_peer": best_peer,
        "ratio": round(statistics.median(ratios), 3),
        "tiles": {name: round(medians[name], 3) for name in kernels if name in medians},
    }


def _variants() -> list[Variant]:
    names = {name for folder in store.search_path() for name in store.names(folder)}
    return [parse(name) for name in sorted(names)]


def _built(dtype: str, columns: int) -> list[Variant]:
    """The kernels of plain softmax that take rows of this length."""
    return [
        variant
        for variant in _variants()
        if isinstance(variant.spec, Softmax)
        and variant.spec.dtype == dtype
        and variant.spec.switched_on == (variant.spec.algorithm,)
        and not (variant.spec.single and variant.spec.columns < columns)
    ]


def _softmax(variant: Variant, x: torch.Tensor, out: torch.Tensor) -> Call:
    module = finder.load(variant.name)
    return lambda: module.softmax(x, out=out)


def _topk(variant: Variant, x: torch.Tensor) -> Call:
    module = finder.load(variant.name)
    return lambda: module.softmax_topk(x, TOPK_K)


def _torch(x: torch.Tensor, out: torch.Tensor) -> Call:
    return lambda: torch.softmax(x, -1, out=out)


def _copy(x: torch.Tensor, out: torch.Tensor) -> Call:
    return lambda: out.copy_(x)


def _torch_topk(x: torch.Tensor) -> Callable[[], Any]:
    return lambda: torch.topk(torch.softmax(x, -1), TOPK_K)


def _release() -> None:
    gc.collect()
    torch.cuda.empty_cache()
