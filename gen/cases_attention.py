"""The inputs that attention kernels are verified on: tile edges, hard values, odd layouts.

One table serves `attngen verify` and the tests. A new feature adds one line to `_FEATURE_VALUES`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One call of an attention kernel.

    Attributes:
        name: what it is about.
        seqlen_q: queries.
        seqlen_kv: keys.
        batch: sequences.
        heads_q: query heads.
        heads_kv: key and value heads.
        family: how q, k and v are drawn; a key of FAMILIES.
        fused: are q, k and v views of one buffer, so that no stride is the contiguous one?
        broadcast: has the bias one matrix for all heads, and the mask one for all sequences?
        options: sm_scale, causal_offset and softcap, where they are not the usual ones.
    """

    name: str
    seqlen_q: int
    seqlen_kv: int
    batch: int = 1
    heads_q: int = 2
    heads_kv: int = 1
    family: str = "normal"
    fused: bool = False
    broadcast: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def cases(variant: Variant, *, long: bool = False) -> Iterator[Case]:
    """The cases for a kernel; `long` adds the lengths that only a GPU gets through."""
    m, n = variant.config.block_m, variant.config.block_n
    yield Case("one query, one key", 1, 1)
    yield Case("whole tiles", m, 2 * n)
    yield Case("one short of a tile", m - 1, n - 1)
    yield Case("one past a tile", m + 1, 2 * n + 1, batch=2)
    yield Case("one query, many keys", 1, 3 * n + 5, heads_q=6, heads_kv=2)
    yield Case("more queries than keys", n + 9, 5)
    yield Case("no keys", 3, 0)
    yield Case("no queries", 0, 3)
    yield Case("views of one buffer, groups of 3", 19, n + 3, 2, 6, 2, fused=True)
    yield Case("scale 0.1", 70, 2 * n + 3, family="small")
    yield Case("scale 10", 70, 2 * n + 3, family="large")
    yield Case("equal scores", 17, 2 * n + 3, family="equal")
    yield Case("a late outlier", 17, 2 * n + 3, family="outlier")
    yield Case("very negative scores", 17, 2 * n + 3, family="negative")
    yield Case("negative sm_scale", 17, n + 3, options={"sm_scale": -0.3})
    yield Case("zero sm_scale", 17, n + 3, options={"sm_scale": 0.0})
    if variant.spec.softcap:
        yield Case("softcap 30", 70, 2 * n + 3, options={"softcap": 30.0})
        yield Case("softcap 50, scale 10", 70, 2 * n + 3, family="large", options={"softcap": 50.0})
    if variant.spec.bias:
        yield Case("one bias for all heads", 17, n + 3, batch=2, broadcast=True)
    if variant.spec.mask:
        yield Case("one mask for all sequences", 17, n + 3, batch=2, broadcast=True)
    if takes_offset(variant.spec):
        yield Case("top-left", n + 3, m // 2, options={"causal_offset": 0})
        yield Case("an offset far off", 17, n + 3, options={"causal_offset": 10**6})
        yield Case("an offset that is no multiple of 64", 200, 2 * n + 70)
        if variant.config.backend != "sm90":
            # An sm90 kernel takes one offset for all sequences.
            offsets = np.array([-4, n - 1, 2 * n], dtype=np.int64)
            options = {"causal_offset": offsets}
            yield Case("an offset a sequence", 17, n + 3, batch=3, options=options)
    if variant.spec.causal:
        seen = {"causal_offset": 2}
        yield Case("keys that no query sees hold NaN", 17, 2 * n, family="unseen", options=seen)
    if variant.spec.window:
        for window in ((-1, 3), (n + 3, -1), (0, 0)):
            yield Case(f"window {window}", 17, 2 * n + 3, options={"window_size": window})
    if long:
        yield Case("long rows", m + 1, 8192)
        yield Case("many tiles", 1000, 1031, batch=2, heads_q=8, heads_kv=2)


def takes_offset(spec: AttentionFwd) -> bool:
    """Does a query's position among the keys matter to the kernel?"""
    return spec.causal or spec.window or spec.alibi


Draw = Callable[[np.random.Generator, tuple[int, ...], tuple[int, ...], tuple[int, ...]], Any]


def _normal(scale: float) -> Draw:
    return lambda rng, *shapes: tuple(scale * rng.standard_normal(shape) for shape in shapes)


def _equal(rng: np.random.Generator, q: Any, k: Any, v: Any) -> Any:
    return np.full(q, 0.5), np.full(k, 0.25), rng.standard_normal(v)


def _outlier(rng: np.random.Generator, q: Any, k: Any, v: Any) -> Any:
    """One late key that every query finds far the best."""
    keys = rng.standard_normal(k)
    keys[:, -2:-1] = 4.0
    return np.abs(rng.standard_normal(q)), keys, rng.standard_normal(v)


def _unseen(rng: np.random.Generator, q: Any, k: Any, v: Any) -> Any:
    """With causal_offset 2 no query sees the keys from seqlen_q + 2 on: they may hold anything."""
    queries, keys, values = _normal(1.0)(rng, q, k, v)
    keys[:, q[1] + 2 :] = np.nan
    values[:, q[1] + 2 :] = np.nan
    return queries, keys, values


def _negative(rng: np.random.Generator, q: Any, k: Any, v: Any) -> Any:
    """Scores around -16 sqrt(head_dim), all far below those of an empty row's stand-in."""
    return 16 + rng.standard_normal(q), -16 + rng.standard_normal(k), rng.standard_normal(v)


FAMILIES: dict[str, Draw] = {
    "normal": _normal(1.0),
    "small": _normal(0.1),
    "large": _normal(10.0),
    "equal": _equal,
    "outlier": _outlier,
    "negative": _negative,
    "unseen": _unseen,
}


def _bias(rng: np.random.Generator, variant: Variant, shape: tuple[int, ...]) -> Floats:
    """Stored with its last dimension apart."""
    bias = rng.standard_normal(shape[::-1]).astype(np.float32)
    bias[rng.random(bias.shape) < 0.1] = -np.inf
    return bias.T


def _mask(rng: np.random.Generator, variant: Variant, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The second query sees nothing."""
    mask = rng.random(shape) < 0.7
    mask[:, :, 1:2] = False
    return mask


def _sinks(rng: np.random.Generator, variant: Variant, shape: tuple[int, ...]) -> Floats:
    sinks = rng.standard_normal(shape[1]).astype(np.float32)
    sinks[-1] = -np.inf
    return sinks


_FEATURE_VALUES: dict[str, tuple[str, Callable[..., Any]]] = {
    "window": ("window_size", lambda rng, variant, shape: (variant.config.block_n + 3, 7)),
    "softcap": ("softcap", lambda rng, variant, shape: 2.0),
    "alibi": ("alibi_slopes", lambda rng, variant, shape: _slopes(shape[1])),
    "bias": ("bias", _bias),
    "mask": ("mask", _mask),
    "sinks": ("sinks", _sinks),
}


def _slopes(heads: int) -> Floats:
    slopes: Floats = np.exp2(-1.0 - np.arange(heads, dtype=np.float32))
    return slopes


def feature_options(
    rng: np.random.Generator, variant: Variant, scores_shape: tuple[int, ...]
) -> dict[str, Any]:
    """A value for the option of every feature that is on, for scores of a shape."""
    return {
        argument: value(rng, variant, scores_shape)
        for feature, (argument, value) in _FEATURE_VALUES.items()
        if getattr(variant.spec, feature)
    }


def inputs(variant: Variant, case: Case) -> tuple[Floats, Floats, Floats, dict[str, Any]]:
    """q, k, v in float32, not yet rounded, and the options of the call, for one case.

    The same variant and case give the same numbers in every process.
    """
    rng = np.random.default_rng(zlib.crc32(f"{variant.name} {case.name}".encode()))
    spec: AttentionFwd = variant.spec
    q_shape = (case.batch, case.seqlen_q, case.heads_q, spec.head_dim)
    k_shape = (case.batch, case.seqlen_kv, case.heads_kv, spec.head_dim)
    v_shape = (case.batch, case.seqlen_kv, case.heads_kv, spec.head_dim_v)
    q, k, v = (x.astype(np.float32) for x in FAMILIES[case.family](rng, q_shape, k_shape, v_shape))
    scores_shape = (case.batch, case.heads_q, case.seqlen_q, case.seqlen_kv)
    options = feature_options(rng, variant, scores_shape)
    if case.broadcast:
        options |= {"bias": options["bias"][:, :1]} if spec.bias else {}
        options |= {"mask": options["mask"][:1]} if spec.mask else {}
    return q, k, v, {**options, **case.options}
