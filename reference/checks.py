"""The checks that every kernel has to pass: hard, sharp, and the same infinities and NaNs.

*Hard*: each element of o and lse is within `error_budget` of the reference. *Sharp*: the kernel is
about as exact as `plain_attention`, the same computation in the same types with no tiles, so that a
fault which hides inside the budget still shows. The constants stand here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from attngen.reference.arguments import Attn, real_array, resolve
from attngen.reference.problem import Array, Bool, Head
from attngen.reference.rounding import F64, format_of, round_to, ulp
from attngen.reference.scores import scores

# A row's largest error may be ROW_FACTOR times plain's and ROW_ULPS units in the last place more.
ROW_FACTOR = 2.0
ROW_ULPS = 1.0
# A head's root mean square error may be RMS_FACTOR times plain's, and RMS_FLOOR of the root mean
# square of o more: a float32 division, which plain may happen to do without error.
RMS_FACTOR = 1.25
RMS_FLOOR = 2.0**-22
# Rows a head needs for its root mean square to mean something: the errors of one row share their
# cause, so that few rows are few samples, however many columns they have.
RMS_ROWS = 64


def plain_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    operand_dtype: str,
    out_dtype: str | None = None,
    **attn: Unpack[Attn],
) -> F64:
    """Attention in the kernel's types and without tiles, which the sharp check compares with.

    Scores in float32, not rounded further; P = exp(s - row maximum), unnormalised, rounded to the
    operand type; P V in float32, one key after the other if the operands are float32; l the float32
    sum of P before its rounding; one division; one rounding.

    Args:
        q: As in `attention`, values of the operand type.
        k: As in `attention`, values of the operand type.
        v: As in `attention`, values of the operand type.
        operand_dtype: ``"fp16"``, ``"bf16"`` or ``"fp32"``.
        out_dtype: The same names; default `operand_dtype`.
        **attn: The options of `attention`.

    Returns:
        o: float64 [batch, seqlen_q, heads_q, head_dim_v], values of the output type.

    Raises:
        TypeError: An argument is of the wrong kind or dtype.
        ValueError: An argument has a wrong shape or value.
    """
    format_of(operand_dtype, "operand_dtype")
    format_of(operand_dtype if out_dtype is None else out_dtype, "out_dtype")
    problem = resolve(q, k, v, **attn)
    o = np.zeros(problem.o_shape)
    for b, h, exact in problem.heads():
        head = exact.in_float32()
        for rows in head.row_blocks():
            o[b, rows, h] = _plain(head, rows, operand_dtype)
    return round_to(o, operand_dtype if out_dtype is None else out_dtype)


@dataclass(frozen=True)
class Worst:
    """The element of an output that uses most of its budget.

    Attributes:
        index: Its index; empty if the output has no elements.
        got: The kernel's value.
        expected: The reference's value.
        budget: Its bound.
        ratio: |got - expected| / budget; infinite if an infinity or NaN is wrong.
    """

    index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0
    budget: float = 0.0
    ratio: float = 0.0

    def __str__(self) -> str:
        """Return one line for a report."""
        place = ", ".join(map(str, self.index))
        return (
            f"[{place}] got {self.got:.9g}, expected {self.expected:.9g},"
            f" budget {self.budget:.3g} ({self.ratio:.3g} of it used)"
        )


@dataclass(frozen=True)
class Verdict:
    """What the checks found.

    Attributes:
        o: Worst element of o.
        lse: Worst element of lse.
        row_ratio: Largest over rows of the row's error over what the sharp check allows it; None
            if it was not checked.
        rms_ratio: Largest over heads of the head's root mean square error over what the sharp check
            allows it; None if it was not checked.
        failures: Each failed check in words; empty if all passed.
    """

    o: Worst
    lse: Worst
    row_ratio: float | None = None
    rms_ratio: float | None = None
    failures: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failures

    @property
    def ratio(self) -> float:
        """Largest |error| / budget over o and lse."""
        return max(self.o.ratio, self.lse.ratio)


def compare(
    o: ArrayLike,
    lse: ArrayLike,
    o_ref: ArrayLike,
    lse_ref: ArrayLike,
    o_bound: ArrayLike,
    lse_bound: ArrayLike,
    plain_o: ArrayLike | None = None,
    *,
    out_dtype: str,
) -> Verdict:
    """Check a kernel's o and lse against the reference.

    Args:
        o: Any real dtype, [..., heads, head_dim_v]: [batch, seqlen_q, heads, head_dim_v] or
            [total_q, heads, head_dim_v]. bf16 comes as float32.
        lse: Any real dtype, any shape; natural logarithm.
        o_ref: The reference's o, shape of `o`.
        lse_ref: The reference's lse, shape of `lse`.
        o_bound: From `error_budget`, shape of `o`. Not used where `o_ref` is not finite: there the
            kernel has to have the same infinity or NaN.
        lse_bound: From `error_budget`, shape of `lse`; likewise.
        plain_o: From `plain_attention`, shape of `o`; None leaves the sharp check out.
        out_dtype: Type of `o`: ``"fp16"``, ``"bf16"`` or ``"fp32"``.

    Returns:
        What was found; it raises nothing for a wrong kernel.

    Raises:
        TypeError: An array is not of real numbers.
        ValueError: Shapes do not agree, or `out_dtype` is unknown.
    """
    format_of(out_dtype, "out_dtype")
    got_o, ref_o, bound_o = _same_shape("o", o, o_ref, o_bound)
    got_lse, ref_lse, bound_lse = _same_shape("lse", lse, lse_ref, lse_bound)
    worst_o, failures = _hard("o", got_o, ref_o, bound_o)
    worst_lse, words = _hard("lse", got_lse, ref_lse, bound_lse)
    failures += words
    row_ratio = rms_ratio = None
    if plain_o is not None and got_o.size:
        got_o, ref_o, plain = _same_shape("o", got_o, ref_o, plain_o)
        finite = np.isfinite(ref_o) & np.isfinite(got_o) & np.isfinite(plain)
        error = np.abs(_difference(got_o, ref_o, finite))
        plain_error = np.abs(_difference(plain, ref_o, finite))
        size = np.where(finite, ref_o, 0.0)
        if out_dtype != "fp32":
            row_ratio, words = _sharp_rows(error, plain_error, size, out_dtype)
            failures += words
        if got_o[..., 0, 0].size >= RMS_ROWS:
            rms_ratio, words = _sharp_heads(error, plain_error, size)
            failures += words
    return Verdict(worst_o, worst_lse, row_ratio, rms_ratio, tuple(failures))


def _plain(head: Head, rows: slice, operand_dtype: str) -> F64:
    s = scores(head, rows, head.all_keys())
    m = np.maximum(s.max(axis=1, initial=-np.inf), np.float32(head.sink))
    m = np.where(m == -np.inf, np.float32(0), m)
    with np.errstate(invalid="ignore", over="ignore"):
        p = np.exp(s - m[:, None])
        l = p.sum(axis=1) + np.exp(np.float32(head.sink) - m)
        acc = _sum_of_values(round_to(p, operand_dtype), head.finite_v, operand_dtype)
        o: F64 = (acc / np.where(l == 0, np.float32(1), l)[:, None]).astype(np.float64)
    return o


def _sum_of_values(p: Array, v: F64, operand_dtype: str) -> Array:
    """P V in float32: key by key for float32, where the order of the sum is most of the error."""
    narrow = v.astype(np.float32)
    if operand_dtype != "fp32":
        product: Array = p @ narrow
        return product
    acc = np.zeros((len(p), v.shape[1]), dtype=np.float32)
    for p_j, v_j in zip(p.T, narrow, strict=True):
        acc += p_j[:, None] * v_j
    return acc


def _same_shape(
    name: str, got: ArrayLike, ref: ArrayLike, other: ArrayLike
) -> tuple[F64, F64, F64]:
    arrays = [real_array(name, x).astype(np.float64) for x in (got, ref, other)]
    for x in arrays:
        if x.shape != arrays[1].shape:
            raise ValueError(f"{name}: got shape {x.shape}; must be {arrays[1].shape}")
    return arrays[0], arrays[1], arrays[2]


def _difference(a: F64, b: F64, where: Bool) -> F64:
    difference: F64 = np.where(where, a, 0.0) - np.where(where, b, 0.0)
    return difference


def _hard(name: str, got: F64, ref: F64, bound: F64) -> tuple[Worst, list[str]]:
    if not got.size:
        return Worst(), []
    finite = np.isfinite(ref) & np.isfinite(got)
    error = np.abs(_difference(got, ref, finite))
    ratio = np.full(got.shape, np.inf)
    np.divide(error, bound, out=ratio, where=finite & (bound > 0))
    ratio[(got == ref) | (np.isnan(got) & np.isnan(ref))] = 0.0
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), got.shape))
    worst = Worst(index, *(float(x[index]) for x in (got, ref, bound, ratio)))
    beyond = np.count_nonzero(ratio > 1.0)
    words = f"hard: {beyond} of {got.size} elements of {name} beyond the budget, worst {worst}"
    return worst, [words] if beyond else []


def _sharp_rows(error: F64, plain_error: F64, size: F64, out_dtype: str) -> tuple[float, list[str]]:
    largest = np.abs(size).max(axis=-1)
    allowed = ROW_FACTOR * plain_error.max(axis=-1) + ROW_ULPS * ulp(largest, out_dtype)
    ratio = error.max(axis=-1) / allowed
    row = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    worst = float(ratio[row])
    if worst <= 1.0:
        return worst, []
    return worst, [
        f"sharp: row {list(row)} of o has an error of {error[row].max():.3g}; allowed are"
        f" {allowed[row]:.3g} = {ROW_FACTOR:g} times plain's {plain_error[row].max():.3g} and"
        f" {ROW_ULPS:g} ulp at {largest[row]:.3g}"
    ]


def _sharp_heads(error: F64, plain_error: F64, size: F64) -> tuple[float, list[str]]:
    axes = (*range(error.ndim - 2), error.ndim - 1)
    rms, plain_rms, size_rms = (
        np.sqrt(np.mean(x * x, axis=axes)) for x in (error, plain_error, size)
    )
    allowed = RMS_FACTOR * plain_rms + RMS_FLOOR * size_rms
    ratio = np.divide(rms, allowed, out=np.where(rms > 0, np.inf, 0.0), where=allowed > 0)
    words = [
        f"sharp: head {h} of o has a root mean square error of {rms[h]:.3g}; allowed are"
        f" {allowed[h]:.3g} = {RMS_FACTOR:g} times plain's {plain_rms[h]:.3g} and"
        f" {RMS_FLOOR * size_rms[h]:.3g}"
        for h in np.flatnonzero(rms > allowed)
    ]
    return float(ratio.max()), words
