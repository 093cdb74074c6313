"""B33 in a process of its own: rows, sequences and heads that are billions of elements apart.

The buffers are as large as their strides say; only the pages that are written take memory. An
offset of 32 bits reads or writes elsewhere, and mostly ends the process. Prints results as JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from attngen import runtime

DISTANCE = 2**25


def apart(x: torch.Tensor, dimension: int, distance: int) -> torch.Tensor:
    """The same numbers with `distance` elements from one index of a dimension to the next."""
    strides = list(x.stride())
    strides[dimension] = distance
    last = sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
    return torch.empty(last + 1, dtype=x.dtype).as_strided(x.shape, strides).copy_(x)


def inputs(batch: int, heads: int, rows: int) -> list[torch.Tensor]:
    """q, k and v with q = 0 and v's row j filled with j."""
    shape = (batch, rows, heads, 16)
    v = torch.arange(rows, dtype=torch.float16)[None, :, None, None].expand(shape)
    return [torch.zeros(shape, dtype=torch.float16) for _ in "qk"] + [v.contiguous()]


def largest_error(out: torch.Tensor, causal: bool) -> float:
    """How far o is from the mean of the rows that each query sees; NaN counts as far."""
    rows = out.shape[1]
    last = torch.arange(rows) if causal else torch.full((rows,), rows - 1)
    error = (out.double() - (last / 2)[None, :, None, None]).abs()
    return float(error.nan_to_num(math.inf).max())


def run(what: str, causal: bool) -> float:
    if what == "keys":
        q, k, v = inputs(1, 1, 66)
        k, v = apart(k, 1, DISTANCE), apart(v, 1, DISTANCE)
        out = torch.full_like(q, math.nan)
    elif what == "queries":
        q, k, v = inputs(1, 1, 66)
        q = apart(q, 1, DISTANCE)
        out = apart(torch.full_like(v, math.nan), 1, DISTANCE)
    else:
        dimension = {"sequences": 0, "heads": 2}[what]
        q, k, v = inputs(*((4, 1) if what == "sequences" else (1, 4)), rows=2)
        k, v = (apart(x, dimension, 2**30) for x in (k, v))
        out = torch.full_like(q, math.nan)
    runtime.attention(q, k, v, causal=causal, out=out)
    return largest_error(out, causal)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2] == "causal")))
