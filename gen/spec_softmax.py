"""What the row softmax kernels compute: softmax of the last axis, alone or with its top k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attngen.spec import Feature, Rule, Spec, rules_of

ALGORITHMS = ("safe", "online", "single", "split")
OUT_DTYPES = {"out_fp16": "fp16", "out_bf16": "bf16", "out_fp32": "fp32"}
MOST_COLUMNS = 2**30
MOST_SINGLE = 32768
"""The longest row that one program's registers hold."""
MOST_K = 64

SOFTMAX_FEATURES = (
    Feature("safe", "three passes over a row: maximum, sum, output"),
    Feature("online", "two passes over a row: maximum and sum together, output"),
    Feature("single", "one pass: the row stays on the chip"),
    Feature("split", "rows are cut into parts, one a program, whose states are merged"),
    Feature("log", "the output is the logarithm of softmax"),
    Feature("lse", "the log-sum-exp of each row is a second output"),
    Feature("mask", "a boolean tensor says which keys are visible"),
    Feature("scaled", "the logits are multiplied by scale and divided by temperature"),
    *(
        Feature(name, f"the output is {dtype}, whatever the input")
        for name, dtype in OUT_DTYPES.items()
    ),
)


def _columns() -> Rule:
    def broken(spec: Softmax | SoftmaxTopk) -> bool:
        value = spec.columns
        return type(value) is not int or not 1 <= value <= _most_columns(spec)

    return Rule(
        "columns",
        broken,
        lambda spec: (
            f"got {spec.columns!r}, allowed is 1 to {_most_columns(spec)}"
            + (" with single" if _most_columns(spec) == MOST_SINGLE else "")
        ),
    )


def _most_columns(spec: Softmax | SoftmaxTopk) -> int:
    return MOST_SINGLE if getattr(spec, "single", False) is True else MOST_COLUMNS


def _exactly_one(names: tuple[str, ...]) -> Rule:
    words = ", ".join(names)

    def got(spec: Softmax) -> list[str]:
        return [name for name in names if getattr(spec, name) is True]

    return Rule(
        words,
        lambda spec: len(got(spec)) != 1,
        lambda spec: f"got {', '.join(got(spec)) or 'none of them'}, allowed is exactly one",
    )


def _out_dtype() -> Rule:
    def got(spec: Softmax) -> list[str]:
        return [name for name in OUT_DTYPES if getattr(spec, name) is True]

    return Rule(
        ", ".join(OUT_DTYPES),
        lambda spec: len(got(spec)) > 1 or OUT_DTYPES.get("".join(got(spec))) == spec.dtype,
        lambda spec: (
            f"got {', '.join(got(spec))}, allowed is at most one, of another type than dtype"
            f" ({spec.dtype})"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Softmax(Spec):
    """Softmax of each row of a tensor [..., n], or its logarithm, and the log-sum-exp.

    Attributes:
        columns: the longest row that the variant is meant for: `single` takes no longer one, the
            other algorithms take any and are tiled for this length.
        safe: the further switches are those of SOFTMAX_FEATURES; exactly one of the first four,
            the algorithm, is on.
    """

    op: ClassVar[str] = "softmax"
    features: ClassVar[tuple[Feature, ...]] = SOFTMAX_FEATURES
    sizes: ClassVar[dict[str, str]] = {"columns": "c"}
    rules: ClassVar[tuple[Rule, ...]] = (
        _columns(),
        *rules_of(SOFTMAX_FEATURES),
        _exactly_one(ALGORITHMS),
        _out_dtype(),
    )

    columns: int
    safe: bool = False
    online: bool = False
    single: bool = False
    split: bool = False
    log: bool = False
    lse: bool = False
    mask: bool = False
    scaled: bool = False
    out_fp16: bool = False
    out_bf16: bool = False
    out_fp32: bool = False

    @property
    def algorithm(self) -> str:
        """The one of ALGORITHMS that is on."""
        return next(name for name in ALGORITHMS if getattr(self, name))

    @property
    def out_dtype(self) -> str:
        """The type of the output."""
        given = [dtype for name, dtype in OUT_DTYPES.items() if getattr(self, name)]
        return given[0] if given else self.dtype


def _k() -> Rule:
    return Rule(
        "k",
        lambda spec: type(spec.k) is not int or not 1 <= spec.k <= MOST_K,
        lambda spec: f"got {spec.k!r}, allowed is 1 to {MOST_K}",
    )


@dataclass(frozen=True, kw_only=True)
class SoftmaxTopk(Spec):
    """The k largest entries of each row of a tensor [..., n], with their softmax, in one pass.

    Attributes:
        columns: the row length that the variant is tiled for; it takes any.
        k: the most entries of a row that the variant gives; a call may ask for fewer.
    """

    op: ClassVar[str] = "softmax_topk"
    sizes: ClassVar[dict[str, str]] = {"columns": "c", "k": "k"}
    rules: ClassVar[tuple[Rule, ...]] = (_columns(), _k(), *rules_of(()))

    columns: int
    k: int
