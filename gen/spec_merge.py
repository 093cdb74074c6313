"""What the merge kernels compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attngen.spec import Feature, Rule, Spec, rules_of

HEAD_DIMS = range(1, 513)
"""Head dims the templates take: any, odd ones too."""

OUTPUTS = {"out_fp16": "fp16", "out_bf16": "bf16", "out_fp32": "fp32", "out_fp8": "fp8"}
"""The features that give o another type than the inputs, and that type."""

MERGE_FEATURES = (
    Feature("out_fp16", "o is float16, whatever the inputs"),
    Feature("out_bf16", "o is bfloat16, whatever the inputs"),
    Feature("out_fp32", "o is float32, whatever the inputs"),
    Feature("out_fp8", "o is float8_e4m3fn, divided by output_scale and saturated"),
    Feature("base2", "every lse is a logarithm to base 2, as FlashInfer has it"),
)
RAGGED = Feature("ragged", "indptr says which states of one long list belong to each token")


def _head_dim_broken(spec: Merge) -> bool:
    value = spec.head_dim
    return isinstance(value, bool) or not isinstance(value, int) or value not in HEAD_DIMS


def _outputs(spec: Merge) -> list[str]:
    return [feature for feature in OUTPUTS if getattr(spec, feature) is True]


_RULES = (
    Rule(
        "head_dim",
        _head_dim_broken,
        lambda spec: f"got {spec.head_dim!r}, allowed is {HEAD_DIMS.start} to {HEAD_DIMS[-1]}",
    ),
    Rule(
        "output",
        lambda spec: len(_outputs(spec)) > 1,
        lambda spec: f"got {', '.join(_outputs(spec))}, allowed is one of them",
    ),
    Rule(
        "output",
        lambda spec: any(OUTPUTS[feature] == spec.dtype for feature in _outputs(spec)),
        lambda spec: f"got out_{spec.dtype} with dtype {spec.dtype}, which says the same twice",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Merge(Spec):
    """What the two merges have in common.

    Attributes:
        head_dim: columns of o.
        out_fp16: the further switches are those of MERGE_FEATURES.
    """

    features: ClassVar[tuple[Feature, ...]] = MERGE_FEATURES
    sizes: ClassVar[dict[str, str]] = {"head_dim": "d"}
    rules: ClassVar[tuple[Rule, ...]] = (*_RULES, *rules_of(MERGE_FEATURES))

    head_dim: int
    out_fp16: bool = False
    out_bf16: bool = False
    out_fp32: bool = False
    out_fp8: bool = False
    base2: bool = False

    @property
    def out_dtype(self) -> str:
        """The type of o: a name of a dtype, or "fp8"."""
        chosen = [OUTPUTS[feature] for feature in self.switched_on if feature in OUTPUTS]
        return chosen[0] if chosen else self.dtype


@dataclass(frozen=True, kw_only=True)
class MergeState(Merge):
    """The merge of two attention states over disjoint sets of keys."""

    op: ClassVar[str] = "merge_state"


@dataclass(frozen=True, kw_only=True)
class MergeStates(Merge):
    """The merge of n attention states over disjoint sets of keys.

    Attributes:
        ragged: has every token a number of states of its own?
    """

    op: ClassVar[str] = "merge_states"
    features: ClassVar[tuple[Feature, ...]] = (*MERGE_FEATURES, RAGGED)
    rules: ClassVar[tuple[Rule, ...]] = (*_RULES, *rules_of((*MERGE_FEATURES, RAGGED)))

    ragged: bool = False
