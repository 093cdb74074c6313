"""A kernel made of float32 numpy: tiles, narrow P, tensor cores that cut off, exp2 with errors.

It does in numpy what a kernel does on a GPU, with the arithmetic at its worst, so that the error
budget can be held to something without a GPU.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attngen.reference.arguments import resolve
from attngen.reference.masks import visible
from attngen.reference.merge import merge_rows
from attngen.reference.rounding import round_to

F32 = np.float32
LOG2E = F32(1.4426950408889634)


@dataclass(frozen=True)
class Simulation:
    """How the kernel computes.

    chunk: products that a tensor core adds at once (16 on Hopper, 8 on Ampere); 0 is float32 FMA.
    guard: bits kept below the last place while the addends of a chunk are aligned.
    chained: the second product goes on in the accumulator, instead of from 0 in each block.
    raw: scores stay unscaled and the scale is folded into exp2's argument.
    exp2_ulps: largest error of exp2, drawn at random, in units of 2**-23.
    """

    operand_dtype: str
    out_dtype: str
    block_n: int = 64
    num_splits: int = 1
    chunk: int = 16
    guard: int = 1
    chained: bool = True
    raw: bool = True
    exp2_ulps: float = 2.0
    seed: int = 0


def toward_zero(x):
    """float64 to float32 by cutting off."""
    y = x.astype(F32)
    up = np.abs(y.astype(np.float64)) > np.abs(x)
    return np.where(up, np.nextafter(y, F32(0)), y)


def product(a, b, acc, how):
    """acc + a @ b.T in float32: a [m, n], b [k, n], acc [m, k]."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if how.chunk == 0:
        for i in range(a.shape[1]):
            acc = (acc + a[:, i, None] * b[None, :, i]).astype(F32)
        return acc
    for i in range(0, a.shape[1], how.chunk):
        terms = a[:, None, i : i + how.chunk] * b[None, :, i : i + how.chunk]
        largest = np.maximum(np.abs(terms).max(axis=2), np.abs(acc))
        quantum = np.ldexp(1.0, np.frexp(largest)[1] - 24 - how.guard)[..., None]
        total = (np.trunc(terms / quantum) * quantum).sum(axis=2)
        total += np.trunc(acc / quantum[..., 0]) * quantum[..., 0]
        acc = toward_zero(total)
    return acc


def exp2(x, how, rng):
    """ex2.approx: at most `exp2_ulps` units off, subnormal results flushed."""
    y = np.exp2(x.astype(np.float64))
    y = y * (1 + how.exp2_ulps * 2.0**-23 * rng.uniform(-1, 1, y.shape) * (x != 0))
    return np.where(y < 2.0**-126, 0, y).astype(F32)


def scores(head, rows, keys, how):
    """Scores in float32 and the factor of exp2's argument."""
    q, k = head.q[rows], head.k[keys]
    s = product(q, k, np.zeros((len(q), len(k)), F32), how)
    if how.raw and head.softcap is None and head.slope is None and head.bias is None:
        factor = F32(abs(head.scale) or 1.0) * LOG2E
        s = s * F32(np.sign(head.scale))
    else:
        factor = LOG2E
        s = s * F32(head.scale)
        if head.softcap is not None:
            s = F32(head.softcap) * np.tanh(s / F32(head.softcap))
        if head.slope is not None:
            s = s - F32(head.slope) * np.abs(
                head.positions(rows) - np.arange(keys.start, keys.stop)
            ).astype(F32)
        if head.bias is not None:
            s = s + head.bias[rows, keys].astype(F32)
    return np.where(visible(head, rows, keys), s, F32(-np.inf)), factor


def split_state(head, rows, first, last, how, rng):
    """o and lse over the keys from first to last, float32, unnormalised only inside."""
    count = rows.stop - rows.start
    m = np.full(count, -np.inf, F32)
    l, acc = np.zeros(count, F32), np.zeros((count, head.v.shape[1]), F32)
    factor = F32(1)
    for start in range(first, last, how.block_n):
        keys = slice(start, min(start + how.block_n, last))
        s, factor = scores(head, rows, keys, how)
        m_new = np.maximum(m, s.max(axis=1))
        shift = np.where(m_new == -np.inf, F32(0), m_new)
        p = exp2((s - shift[:, None]) * factor, how, rng)
        alpha = exp2((m - shift) * factor, how, rng)
        l = l * alpha + p.sum(axis=1, dtype=F32)
        acc = acc * alpha[:, None]
        narrow = round_to(p, how.operand_dtype)
        if how.chained:
            acc = product(narrow, head.v[keys].T, acc, how)
        else:
            acc = acc + product(narrow, head.v[keys].T, np.zeros_like(acc), how)
        m = m_new
    safe = np.where(l == 0, F32(1), l)
    log2 = np.log2(safe) * F32(1 + 2.0**-23)
    lse = np.where(l == 0, F32(-np.inf), (m * factor + log2) * F32(0.6931471805599453))
    return acc * (F32(1) / safe)[:, None], lse


def simulate(q, k, v, how, **attn):
    """(o, lse) of the simulated kernel: float32, o with values of the output type."""
    problem = resolve(q, k, v, **attn)
    rng = np.random.default_rng(how.seed)
    o, lse = np.zeros(problem.o_shape, F32), np.zeros(problem.lse_shape, F32)
    for b, h, head in problem.heads():
        rows = slice(0, len(head.q))
        size = -(-len(head.k) // how.num_splits)
        cuts = [min(i * size, len(head.k)) for i in range(how.num_splits + 1)]
        state = np.zeros((len(head.q), head.v.shape[1])), np.full(len(head.q), -np.inf)
        for first, last in pairwise(cuts):
            part = split_state(head, rows, first, last, how, rng)
            state = tuple(x.astype(F32) for x in merge_rows(*state, *part))
        sink = np.full(len(head.q), head.sink)
        state = tuple(x.astype(F32) for x in merge_rows(*state, np.zeros_like(state[0]), sink))
        o[b, :, h], lse[b, h] = round_to(state[0], how.out_dtype), state[1]
    return o, lse
