"""The one place where arguments are checked.

`resolve` turns arrays and options into a `Problem` in which every default is filled in and every
option has its full shape. Every error names the argument, what it got and what is allowed.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attngen.reference.problem import Array, Bool, Problem
from attngen.reference.rounding import F64


class Attn(TypedDict, total=False):
    """The options of attention, as keywords; `attention` documents each."""

    causal: bool
    causal_offset: ArrayLike | None
    window_size: tuple[int, int]
    sm_scale: float | None
    softcap: float | None
    sinks: ArrayLike | None
    alibi_slopes: ArrayLike | None
    bias: ArrayLike | None
    mask: ArrayLike | None


def real_array(name: str, x: ArrayLike, dims: str | None = None) -> Array:
    """`x` as a numpy array of real numbers, with the dimensions that `dims` names, if given."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name}: got dtype {array.dtype}; must be a real floating or integer type")
    if dims is not None and array.ndim != len(dims.split()):
        raise ValueError(f"{name}: got shape {array.shape}; must be [{', '.join(dims.split())}]")
    return array


def check_lengths(name: str, x: ArrayLike, batch: int | None = None) -> NDArray[np.int64]:
    """`x` as int64 [batch]: lengths, offsets or cumulative lengths, whole numbers all."""
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: got dtype {array.dtype}; must be an integer type")
    if array.ndim != 1 or (batch is not None and len(array) != batch):
        wanted = "[batch + 1]" if batch is None else f"[{batch}]"
        raise ValueError(f"{name}: got shape {array.shape}; must be {wanted}")
    return array.astype(np.int64)


def check_window(window_size: tuple[int, int]) -> tuple[int, int]:
    """(left, right), each -1 (unbounded) or more."""
    if not isinstance(window_size, tuple | list) or len(window_size) != 2:
        raise TypeError(f"window_size: got {window_size!r}; must be a pair (left, right)")
    for entry in window_size:
        if isinstance(entry, bool) or not isinstance(entry, Integral):
            raise TypeError(f"window_size: got {window_size!r}; must be two integers")
        if entry < -1:
            raise ValueError(
                f"window_size: got {window_size!r}; each must be -1 (unbounded) or 0 and above"
            )
    return int(window_size[0]), int(window_size[1])


def check_number(name: str, x: float, *, positive: bool = False) -> float:
    """`x` as a finite float, above 0 if `positive`."""
    allowed = "a finite number above 0" if positive else "a finite number"
    if isinstance(x, bool | np.bool_) or not isinstance(x, Real):
        raise TypeError(f"{name}: got {x!r}; must be {allowed}")
    if not math.isfinite(x) or (positive and x <= 0):
        raise ValueError(f"{name}: got {x!r}; must be {allowed}")
    return float(x)


def check_block(name: str, block: int) -> int:
    """`block` as an int of at least 1."""
    if isinstance(block, bool) or not isinstance(block, Integral):
        raise TypeError(f"{name}: got {block!r}; must be an integer")
    if block < 1:
        raise ValueError(f"{name}: got {block!r}; must be 1 or more")
    return int(block)


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    batch, _, heads_q, head_dim = q.shape
    if head_dim < 1 or v.shape[3] < 1:
        raise ValueError(f"head_dim: got {head_dim} and {v.shape[3]} for v; must be 1 or more")
    for name, x in (("k", k), ("v", v)):
        if x.shape[0] != batch:
            raise ValueError(f"{name}: got batch {x.shape[0]}; must be that of q, {batch}")
    if k.shape[3] != head_dim:
        raise ValueError(f"k: got head_dim {k.shape[3]}; must be that of q, {head_dim}")
    if v.shape[1:3] != k.shape[1:3]:
        raise ValueError(
            f"v: got (seqlen_kv, heads_kv) = {v.shape[1:3]}; must be that of k, {k.shape[1:3]}"
        )
    heads_kv = k.shape[2]
    if heads_kv < 1 or heads_q % heads_kv:
        raise ValueError(f"heads_q: got {heads_q}; must be a multiple of heads_kv = {heads_kv}")


def check_offset(causal_offset: ArrayLike | None, default: NDArray[np.int64]) -> NDArray[np.int64]:
    """`causal_offset` as int64 [batch]; `default` has one entry a sequence."""
    if causal_offset is None:
        return default
    if isinstance(causal_offset, Integral) and not isinstance(causal_offset, bool):
        return np.full_like(default, int(causal_offset))
    return check_lengths("causal_offset", causal_offset, len(default))


def check_sinks(sinks: ArrayLike | None, heads_q: int) -> F64:
    """`sinks` as float64 [heads_q]; none is -inf."""
    if sinks is None:
        return np.full(heads_q, -np.inf)
    array = real_array("sinks", sinks)
    if array.shape != (heads_q,):
        raise ValueError(f"sinks: got shape {array.shape}; must be [heads_q] = [{heads_q}]")
    return array.astype(np.float64)


def check_slopes(alibi_slopes: ArrayLike | None, batch: int, heads_q: int) -> F64 | None:
    """`alibi_slopes` as float64 [batch, heads_q]."""
    if alibi_slopes is None:
        return None
    slopes = real_array("alibi_slopes", alibi_slopes)
    if slopes.shape not in ((heads_q,), (batch, heads_q)):
        raise ValueError(
            f"alibi_slopes: got shape {slopes.shape}; must be [{heads_q}] or [{batch}, {heads_q}]"
        )
    return np.broadcast_to(slopes.astype(np.float64), (batch, heads_q))


def check_bias(bias: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    """`bias` as a view of `shape`, [batch, heads_q, seqlen_q, seqlen_kv]."""
    return None if bias is None else _broadcast("bias", real_array("bias", bias), shape)


def check_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> Bool | None:
    """`mask` as a bool view of `shape`, [batch, heads_q, seqlen_q, seqlen_kv]."""
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"mask: got dtype {array.dtype}; must be bool, True = visible")
    return _broadcast("mask", array, shape)


def _broadcast(name: str, x: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(
            f"{name}: got shape {x.shape}; must broadcast to"
            f" [batch, heads_q, seqlen_q, seqlen_kv] = {list(shape)}"
        ) from None


def resolve(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool = False,
    causal_offset: ArrayLike | None = None,
    window_size: tuple[int, int] = (-1, -1),
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    alibi_slopes: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Problem:
    """Check every argument of `attention` and fill in every default.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value. Both name the argument, what it got and
            what is allowed.
    """
    if not isinstance(causal, bool | np.bool_):
        raise TypeError(f"causal: got {causal!r}; must be True or False")
    q_array = real_array("q", q, "batch seqlen_q heads_q head_dim")
    k_array = real_array("k", k, "batch seqlen_kv heads_kv head_dim")
    v_array = real_array("v", v, "batch seqlen_kv heads_kv head_dim_v")
    _check_shapes(q_array, k_array, v_array)
    batch, seqlen_q, heads_q, head_dim = q_array.shape
    seqlen_kv = k_array.shape[1]
    shape = (batch, heads_q, seqlen_q, seqlen_kv)
    return Problem(
        q=q_array,
        k=k_array,
        v=v_array,
        causal=bool(causal),
        offset=check_offset(causal_offset, np.full(batch, seqlen_kv - seqlen_q, dtype=np.int64)),
        window=check_window(window_size),
        scale=1.0 / math.sqrt(head_dim) if sm_scale is None else check_number("sm_scale", sm_scale),
        softcap=None if softcap is None else check_number("softcap", softcap, positive=True),
        sinks=check_sinks(sinks, heads_q),
        slopes=check_slopes(alibi_slopes, batch, heads_q),
        bias=check_bias(bias, shape),
        mask=check_mask(mask, shape),
    )
