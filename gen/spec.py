"""What a kernel computes: frozen specs, and the one table of rules that says which are valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from attngen.errors import InvalidSpec

DTYPES = ("fp16", "bf16", "fp32")
HEAD_DIMS = range(8, 257, 8)
"""Head dims the templates take: rows of a 16-bit tensor are then a multiple of 16 bytes."""


@dataclass(frozen=True)
class Feature:
    """A switch of a spec: its name is the spec's field, the token in a name and the option."""

    name: str
    help: str


ATTENTION_FEATURES = (
    Feature("causal", "query i sees key j when j <= i + causal_offset (bottom-right by default)"),
    Feature("window", "a query sees `left` keys before its position and `right` after it"),
    Feature("softcap", "scores become softcap * tanh(score / softcap)"),
    Feature("alibi", "scores lose slope * distance, one slope a head"),
    Feature("bias", "a tensor is added to the scores"),
    Feature("mask", "a boolean tensor says which keys are visible"),
    Feature("sinks", "one extra logit a head in the denominator, without a value"),
)


@dataclass(frozen=True)
class Rule:
    """One statement of validity: `broken` is true where it does not hold, `message` says why."""

    name: str
    broken: Callable[[AttentionFwd], bool]
    message: Callable[[AttentionFwd], str]


@dataclass(frozen=True, kw_only=True)
class AttentionFwd:
    """Attention forward over dense tensors: o = softmax(q k^T * sm_scale) v and its log-sum-exp.

    Attributes:
        head_dim: columns of q and k.
        head_dim_v: columns of v and o; `head_dim` where it is not given.
        dtype: "fp16", "bf16" or "fp32", of q, k, v and o; sums are float32 in all of them.
        causal: the further switches are those of ATTENTION_FEATURES.

    Raises:
        InvalidSpec: naming every rule that is broken, what was got and what is allowed.
    """

    op: ClassVar[str] = "attention_fwd"
    features: ClassVar[tuple[Feature, ...]] = ATTENTION_FEATURES

    head_dim: int
    head_dim_v: int = 0
    dtype: str
    causal: bool = False
    window: bool = False
    softcap: bool = False
    alibi: bool = False
    bias: bool = False
    mask: bool = False
    sinks: bool = False

    def __post_init__(self) -> None:
        """Fill in `head_dim_v` and hold the rules."""
        if type(self.head_dim_v) is int and self.head_dim_v == 0:
            object.__setattr__(self, "head_dim_v", self.head_dim)
        broken = [f"{rule.name}: {rule.message(self)}" for rule in RULES if rule.broken(self)]
        if broken:
            raise InvalidSpec("; ".join(broken))

    @property
    def switched_on(self) -> tuple[str, ...]:
        """The names of the features that are on, in the order of the name grammar."""
        return tuple(f.name for f in self.features if getattr(self, f.name))

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that give exactly this spec."""
        words = ["--head-dim", str(self.head_dim)]
        if self.head_dim_v != self.head_dim:
            words += ["--head-dim-v", str(self.head_dim_v)]
        words += ["--dtype", self.dtype, "--causal" if self.causal else "--no-causal"]
        words += [f"--{name}" for name in self.switched_on if name != "causal"]
        return tuple(words)


def _is_not_head_dim(value: object) -> bool:
    return isinstance(value, bool) or not isinstance(value, int) or value not in HEAD_DIMS


def _is_switch(name: str) -> Rule:
    return Rule(
        name,
        lambda spec: not isinstance(getattr(spec, name), bool),
        lambda spec: f"got {getattr(spec, name)!r}, allowed are True, False",
    )


_ALLOWED_HEAD_DIMS = f"a multiple of {HEAD_DIMS.step} from {HEAD_DIMS.start} to {HEAD_DIMS[-1]}"

RULES: tuple[Rule, ...] = (
    Rule(
        "head_dim",
        lambda spec: _is_not_head_dim(spec.head_dim),
        lambda spec: f"got {spec.head_dim!r}, allowed is {_ALLOWED_HEAD_DIMS}",
    ),
    Rule(
        "head_dim_v",
        # What was filled in from a wrong head_dim is told once.
        lambda spec: (
            _is_not_head_dim(spec.head_dim_v)
            and (type(spec.head_dim_v), spec.head_dim_v) != (type(spec.head_dim), spec.head_dim)
        ),
        lambda spec: f"got {spec.head_dim_v!r}, allowed is {_ALLOWED_HEAD_DIMS}",
    ),
    Rule(
        "dtype",
        lambda spec: spec.dtype not in DTYPES,
        lambda spec: f"got {spec.dtype!r}, allowed are {', '.join(DTYPES)}",
    ),
    *(_is_switch(feature.name) for feature in ATTENTION_FEATURES),
)

OPS: dict[str, type[AttentionFwd]] = {spec.op: spec for spec in (AttentionFwd,)}
