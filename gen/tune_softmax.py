"""What row softmax is timed on: numbers of rows, one for each bucket, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from attngen.spec_softmax import Softmax, SoftmaxTopk
from attngen.verify_attention import TORCH_DTYPES

ELEMENTS = (2**22, 2**27)
"""Of x: one that the cache of a large GPU holds, and one that it does not."""

Shape = tuple[int, int]
"""Rows and columns."""


def shapes(spec: Softmax | SoftmaxTopk) -> Iterator[Shape]:
    """Rows of the spec's length: as many as fill a cache, and many more; of `split`, few."""
    counts = [max(1, n // spec.columns) for n in ELEMENTS]
    if isinstance(spec, Softmax) and spec.split:
        counts = [1, 16]
    for rows in dict.fromkeys(counts):
        yield rows, spec.columns


def sizes(shape: Shape) -> dict[str, int]:
    """What the bucket is made of."""
    return {"rows": shape[0]}


def inputs(
    spec: Softmax | SoftmaxTopk, shape: Shape, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Unit normal logits, and what the spec's features need."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = TORCH_DTYPES[spec.dtype]
    x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    if isinstance(spec, SoftmaxTopk):
        return (x, spec.k), {}
    options: dict[str, Any] = {"mask": x > -1} if spec.mask else {}
    if spec.scaled:
        options |= {"scale": 1.0, "temperature": 0.7}
    return (x,), options
