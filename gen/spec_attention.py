"""What the attention kernels compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attngen.spec import Feature, Rule, Spec, rules_of

HEAD_DIMS = range(8, 257, 8)
"""Head dims the templates take: rows of a 16-bit tensor are then a multiple of 16 bytes."""

ATTENTION_FEATURES = (
    Feature("causal", "query i sees key j when j <= i + causal_offset (bottom-right by default)"),
    Feature("window", "a query sees `left` keys before its position and `right` after it"),
    Feature("softcap", "scores become softcap * tanh(score / softcap)"),
    Feature("alibi", "scores lose slope * distance, one slope a head"),
    Feature("bias", "a tensor is added to the scores"),
    Feature("mask", "a boolean tensor says which keys are visible"),
    Feature("sinks", "one extra logit a head in the denominator, without a value"),
)


def _head_dim(name: str) -> Rule:
    allowed = f"a multiple of {HEAD_DIMS.step} from {HEAD_DIMS.start} to {HEAD_DIMS[-1]}"

    def broken(spec: Attention) -> bool:
        value = getattr(spec, name)
        if name == "head_dim_v" and value is spec.head_dim:
            return False  # what was filled in from a wrong head_dim is told once
        return isinstance(value, bool) or not isinstance(value, int) or value not in HEAD_DIMS

    return Rule(name, broken, lambda spec: f"got {getattr(spec, name)!r}, allowed is {allowed}")


@dataclass(frozen=True, kw_only=True)
class Attention(Spec):
    """What all attention has: o = softmax(q k^T * sm_scale) v and its log-sum-exp.

    Attributes:
        head_dim: columns of q and k.
        head_dim_v: columns of v and o; `head_dim` where it is not given.
        causal: the further switches are those of ATTENTION_FEATURES.
    """

    sizes: ClassVar[dict[str, str]] = {"head_dim": "d", "head_dim_v": "dv"}

    head_dim: int
    head_dim_v: int = 0
    causal: bool = False
    window: bool = False
    softcap: bool = False
    alibi: bool = False
    sinks: bool = False

    def __post_init__(self) -> None:
        """Fill in `head_dim_v` and hold the rules."""
        if type(self.head_dim_v) is int and self.head_dim_v == 0:
            object.__setattr__(self, "head_dim_v", self.head_dim)
        super().__post_init__()

    @property
    def named_sizes(self) -> dict[str, int]:
        """The head dims; one of them where they are the same."""
        sizes = {"head_dim": self.head_dim, "head_dim_v": self.head_dim_v}
        return sizes if self.head_dim_v != self.head_dim else {"head_dim": self.head_dim}


def attention_rules(features: tuple[Feature, ...]) -> tuple[Rule, ...]:
    """The rules of every attention with these features."""
    return (_head_dim("head_dim"), _head_dim("head_dim_v"), *rules_of(features))


@dataclass(frozen=True, kw_only=True)
class AttentionFwd(Attention):
    """Attention forward over dense tensors."""

    op: ClassVar[str] = "attention_fwd"
    features: ClassVar[tuple[Feature, ...]] = ATTENTION_FEATURES
    rules: ClassVar[tuple[Rule, ...]] = attention_rules(ATTENTION_FEATURES)

    bias: bool = False
    mask: bool = False


DECODE_FEATURES = (
    *(feature for feature in ATTENTION_FEATURES if feature.name not in ("bias", "mask")),
    Feature("paged", "k and v lie in the pages of a cache, found through a block table"),
)


@dataclass(frozen=True, kw_only=True)
class AttentionDecode(Attention):
    """Attention of a few queries a sequence, its keys split over programs and merged.

    Attributes:
        paged: k and v lie in the pages of a cache; the further switches are DECODE_FEATURES.
    """

    op: ClassVar[str] = "attention_decode"
    features: ClassVar[tuple[Feature, ...]] = DECODE_FEATURES
    rules: ClassVar[tuple[Rule, ...]] = attention_rules(DECODE_FEATURES)
    # No tensors shaped like the scores: partials that both templates use ask for them.
    bias: ClassVar[bool] = False
    mask: ClassVar[bool] = False

    paged: bool = False


def _no_tensor_of_scores(feature: str) -> Rule:
    """The rule that nothing is shaped like the scores: sequences of many lengths have no such."""
    return Rule(
        feature,
        lambda spec: getattr(spec, feature) is True,
        lambda spec: f"got True, allowed with {spec.op} is False",
    )


@dataclass(frozen=True, kw_only=True)
class AttentionVarlen(AttentionFwd):
    """Attention within each of many sequences that are packed one after the other."""

    op: ClassVar[str] = "attention_varlen"
    rules: ClassVar[tuple[Rule, ...]] = (
        *AttentionFwd.rules,
        _no_tensor_of_scores("bias"),
        _no_tensor_of_scores("mask"),
    )


@dataclass(frozen=True, kw_only=True)
class AttentionPaged(AttentionVarlen):
    """The same over keys and values in the pages of a cache, which a block table lists."""

    op: ClassVar[str] = "attention_paged"
