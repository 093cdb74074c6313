"""The run-time face of row softmax: which kernel a call takes, by the length of a row.

Nothing is rendered here and nothing falls back in silence: what is not built raises NotGenerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attngen import store
from attngen.config import next_power_of_2
from attngen.errors import InvalidSpec
from attngen.finder import DTYPES, find
from attngen.spec_softmax import ALGORITHMS, MOST_K, MOST_SINGLE, Softmax, SoftmaxTopk
from attngen.variant import parse

FEWEST_COLUMNS = 128
"""The smallest bucket of row lengths."""
FEW_ROWS = 128
"""With fewer long rows than this, one program a row leaves most of a GPU idle."""


def softmax(
    x: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    temperature: float = 1.0,
    log: bool = False,
    return_lse: bool = False,
    out_dtype: torch.dtype | None = None,
    algorithm: str | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Softmax of the last axis, of x * scale / temperature, by a generated kernel.

    The definition is `attngen.reference.safe_softmax` of `attngen.reference.logits`. Tensors are on
    one GPU (or on the CPU under TRITON_INTERPRET=1), with any strides. There is no backward.

    The algorithm follows from the shape: `single`, which reads x once, for rows of up to 32768
    columns; for longer ones `split` where there are fewer than 128 rows, else `online`. Of the
    kernels that are built for it, the one with the smallest bucket of columns that holds a row is
    taken (beside `single`: else the one with the largest). A row's bits therefore depend on its
    length, and beyond 32768 columns on whether there are 128 rows; `algorithm` says which it is.

    Args:
        x: [..., n], float16, bfloat16 or float32; rows of any length, 0 too.
        mask: bool, True where an entry is visible; broadcasts to x. The others count as -inf.
        scale: any finite factor of x; an entry of -inf stays -inf whatever the factor.
        temperature: finite and above 0, divides x.
        log: give the logarithm of softmax.
        return_lse: also return the log-sum-exp.
        out_dtype: of y; that of out, or of x, where it is not given.
        algorithm: "single", "online", "safe" or "split", where the rule above should not choose.
        out: takes y, where it is given; x itself is allowed.

    Returns:
        y: like x, of out_dtype. A row of nothing but -inf is 0 (-inf with `log`); a row with +inf
            or NaN is NaN.
        lse: with return_lse, x.shape[:-1], float32, natural logarithm; -inf for a row of nothing
            but -inf.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this dtype, or `single` this length.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    columns, rows = _sizes(x)
    if out_dtype is None:
        out_dtype = x.dtype if out is None else getattr(out, "dtype", x.dtype)
    if algorithm is None:
        short = "split" if rows < FEW_ROWS else "online"
        algorithm = "single" if columns <= MOST_SINGLE else short
    elif algorithm not in ALGORITHMS:
        allowed = ", ".join(ALGORITHMS)
        raise ValueError(f"algorithm: got {algorithm!r}, allowed are None, {allowed}")
    options: dict[str, Any] = {"out": out}
    scaled = (scale, temperature) != (1.0, 1.0)
    if scaled:
        options |= {"scale": scale, "temperature": temperature}
    if mask is not None:
        options["mask"] = mask
    flags = (log, return_lse, mask is not None, scaled)
    kernel = _kernel(x.device, _bucket(columns), x.dtype, out_dtype, algorithm, *flags)
    result: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = kernel.softmax(x, **options)
    return result


def softmax_topk(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The k largest entries of each row, their columns and their softmax, by a generated kernel.

    The definition is `attngen.reference.softmax_topk`. Of the kernels that are built, the one with
    the smallest k that is enough is taken, and of those the one with the smallest bucket of columns
    that holds a row, else with the largest. There is no backward.

    Args:
        x: [..., n], float16, bfloat16 or float32, on one GPU (or on the CPU under
            TRITON_INTERPRET=1), with any strides; rows of any length, 0 too.
        k: 0 to 64.

    Returns:
        values: [..., k], like x, the k largest entries, largest first.
        indices: [..., k], int64, their columns; the lower one first among equals.
        probabilities: [..., k], float32, their softmax over the whole row.
        An entry of -inf counts as masked: ranks for which a row has no other entry left hold
        (-inf, -1, 0). In a row with +inf or NaN all ranks hold (NaN, -1, NaN).

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this dtype.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape or value.
    """
    columns, _ = _sizes(x)
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k: got {k!r}, allowed is an int")
    if not 0 <= k <= MOST_K:
        raise ValueError(f"k: got {k}, allowed is 0 to {MOST_K}")
    kernel = _topk_kernel(x.device, _bucket(columns), x.dtype, max(k, 1))
    result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = kernel.softmax_topk(x, k)
    return result


def _sizes(x: torch.Tensor) -> tuple[int, int]:
    """Columns and rows of x."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x: got {type(x).__name__}, allowed is a torch.Tensor")
    if x.dim() == 0:
        raise ValueError("x: got a single number, allowed is a tensor [..., n]")
    return x.shape[-1], math.prod(x.shape[:-1])


def _dtype(name: str, dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        allowed = ", ".join(str(d) for d in DTYPES)
        raise InvalidSpec(f"{name}: got {dtype}, allowed are {allowed}")
    return DTYPES[dtype]


def _bucket(columns: int) -> int:
    """The power of two that holds a row."""
    return max(FEWEST_COLUMNS, next_power_of_2(max(columns, 1)))


@lru_cache(maxsize=1024)
def _kernel(
    device: torch.device,
    columns: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    algorithm: str,
    *flags: bool,
) -> ModuleType:
    """The module of the built softmax kernel that serves a bucket of columns best."""
    name, out_name = _dtype("dtype", dtype), _dtype("out_dtype", out_dtype)
    features = {algorithm: True, f"out_{out_name}": out_name != name}
    features |= dict(zip(("log", "lse", "mask", "scaled"), flags, strict=True))
    return _closest(Softmax(columns=columns, dtype=name, **features), device)


@lru_cache(maxsize=1024)
def _topk_kernel(device: torch.device, columns: int, dtype: torch.dtype, k: int) -> ModuleType:
    """The module of the built top-k kernel that serves a bucket of columns and a k best."""
    spec = SoftmaxTopk(columns=columns, k=k, dtype=_dtype("dtype", dtype))
    return _closest(spec, device)


def _closest(spec: Softmax | SoftmaxTopk, device: torch.device) -> ModuleType:
    built = [other for other in _built(spec.op) if _serves(other, spec)]
    closest = min(built, key=lambda other: _distance(other, spec), default=spec)
    return find(closest, device=device)


def _built(op: str) -> Iterable[Any]:
    names = {name for folder in store.search_path() for name in store.names(folder)}
    return [spec for name in sorted(names) if (spec := parse(name).spec).op == op]


def _serves(other: Any, spec: Softmax | SoftmaxTopk) -> bool:
    if isinstance(spec, SoftmaxTopk) and other.k < spec.k:
        return False
    if isinstance(spec, Softmax) and spec.single and other.columns < spec.columns:
        return False
    return (other.dtype, other.switched_on) == (spec.dtype, spec.switched_on)


def _distance(other: Any, spec: Any) -> tuple[int, bool, int]:
    """The smallest k that is enough, then the smallest bucket that holds a row, or the largest."""
    short = other.columns < spec.columns
    return getattr(other, "k", 0), short, -other.columns if short else other.columns
