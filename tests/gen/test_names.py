"""Specs say what is valid, all of it at once; names are a grammar that `parse` inverts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attngen.catalog import catalog
from attngen.config import TARGETS, TileConfig
from attngen.errors import InvalidSpec
from attngen.ops import OPS, default_config, why_not
from attngen.spec import DTYPES, Spec
from attngen.spec_attention import (
    ATTENTION_FEATURES,
    HEAD_DIMS,
    Attention,
    AttentionDecode,
    AttentionFwd,
    AttentionPaged,
    AttentionVarlen,
)
from attngen.spec_merge import OUTPUTS, Merge, MergeState, MergeStates
from attngen.variant import Variant, parse


def _specs(op: type[Attention], *without: str) -> st.SearchStrategy[Attention]:
    features = (feature.name for feature in op.features if feature.name not in without)
    return st.builds(
        op,
        head_dim=st.sampled_from(HEAD_DIMS),
        head_dim_v=st.sampled_from([0, *HEAD_DIMS]),
        dtype=st.sampled_from(DTYPES),
        **{feature: st.booleans() for feature in features},
    )


SPECS = st.one_of(
    _specs(AttentionFwd),
    _specs(AttentionDecode),
    _specs(AttentionVarlen, "bias", "mask"),
    _specs(AttentionPaged, "bias", "mask"),
)
CONFIGS = st.builds(
    TileConfig,
    block_m=st.sampled_from([16, 32, 64, 128, 256]),
    block_n=st.sampled_from([16, 32, 64, 128, 256]),
    num_warps=st.sampled_from([1, 2, 4, 8, 16]),
    num_stages=st.integers(1, 7),
)


@st.composite
def merges(draw: st.DrawFn) -> Merge:
    """Any spec of either merge."""
    spec_class = draw(st.sampled_from([MergeState, MergeStates]))
    dtype = draw(st.sampled_from(DTYPES))
    output = draw(st.sampled_from([None, *(f for f, out in OUTPUTS.items() if out != dtype)]))
    features = {output: True} if output else {}
    if spec_class is MergeStates:
        features["ragged"] = draw(st.booleans())
    head_dim, base2 = draw(st.integers(1, 512)), draw(st.booleans())
    return spec_class(head_dim=head_dim, dtype=dtype, base2=base2, **features)


@given(merges(), st.integers(0, 10), st.sampled_from([1, 2, 4, 8, 16]))
def test_parse_inverts_names_of_merges(spec: Merge, log_m: int, num_warps: int) -> None:
    config = TileConfig(block_m=1 << log_m, block_n=0, num_warps=num_warps, num_stages=1)
    if why_not(spec, config) is not None:
        config = default_config(spec)
    variant = Variant(spec, config)
    assert parse(variant.name) == variant
    assert "_n" not in variant.name


@given(merges(), merges())
def test_different_merges_have_different_names(a: Merge, b: Merge) -> None:
    assert (a.name == b.name) == (a == b)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"head_dim": 0}, "head_dim: got 0, allowed is 1 to 512"),
        ({"head_dim": 513}, "head_dim: got 513"),
        ({"head_dim": True}, "head_dim: got True"),
        ({"head_dim": 64.0}, "head_dim: got 64.0"),
        ({"dtype": "fp8"}, "dtype: got 'fp8', allowed are fp16, bf16, fp32"),
        ({"out_fp32": 1}, "out_fp32: got 1"),
        ({"out_bf16": True}, "output: got out_bf16 with dtype bf16, which says the same twice"),
        ({"out_fp32": True, "out_fp8": True}, "output: got out_fp32, out_fp8, allowed is one"),
    ],
)
@pytest.mark.parametrize("op", ["merge_state", "merge_states"])
def test_rules_of_merges(op: str, fields: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        OPS[op].spec(**{"head_dim": 64, "dtype": "bf16", **fields})  # type: ignore[arg-type]
    assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_m": 3}, "block_m: got 3, allowed at this head dim are 1, 2, 4, 8, 16, 32"),
        ({"block_m": 64}, "block_m: got 64"),
        ({"block_n": 16}, "block_n: got 16, allowed is none: a merge has no keys"),
        ({"num_warps": 3}, "num_warps: got 3"),
        ({"num_stages": 2}, "num_stages: got 2, allowed is 1"),
        ({"backend": "sm90"}, "backend: got sm90, allowed with merge_state is triton"),
    ],
)
def test_tiles_that_no_merge_can_have(change: dict[str, object], words: str) -> None:
    spec = MergeState(head_dim=512, dtype="bf16")
    reason = why_not(spec, TileConfig(**{**vars(default_config(spec)), **change}))  # type: ignore[arg-type]
    assert reason is not None and reason.startswith(words)


def test_float8_is_refused_for_a_target_without_it() -> None:
    spec: Spec = MergeState(head_dim=128, dtype="bf16", out_fp8=True)
    for name, target in TARGETS.items():
        reason = why_not(spec, default_config(spec), target)
        if name in ("sm_80", "sm_86"):
            assert (
                reason
                == f"out_fp8: got {name}, which has no float8_e4m3fn; allowed is sm_89 and up"
            )
        else:
            assert reason is None


@given(SPECS, CONFIGS)
def test_parse_inverts_names(spec: Attention, config: TileConfig) -> None:
    variant = Variant(spec, config)
    assert parse(variant.name) == variant


@given(SPECS, SPECS)
def test_different_specs_have_different_names(a: AttentionFwd, b: AttentionFwd) -> None:
    names = [Variant(spec, default_config(spec)).name for spec in (a, b)]
    assert (names[0] == names[1]) == (a == b)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "attention_fwd",
        "attention_fwd_d128_bf16",
        "attention_fwd_d128_bf16_m128_n64_w8",
        "attention_fwd_d128_bf17_m128_n64_w8_s2",
        "attention_fwd_d128_bf16_m128_n64_w8_s2_sm90x",
        "attention_fwd_d128_bf16_sinks_causal_m128_n64_w8_s2",
        "attention_fwd_d0128_bf16_m128_n64_w8_s2",
        "attention_fwd_d128_dv128_bf16_m128_n64_w8_s2",
        "attention_fwd_d128_bf16_m128_n64_w8_s2\n",
        "Attention_fwd_d128_bf16_m128_n64_w8_s2",
        "../attention_fwd_d128_bf16_m128_n64_w8_s2",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="name: got"):
        parse(name)


def test_names_of_the_design() -> None:
    name = "attention_fwd_d128_bf16_causal_m128_n64_w8_s3"
    spec = AttentionFwd(head_dim=128, dtype="bf16", causal=True)
    config = TileConfig(block_m=128, block_n=64, num_warps=8, num_stages=3)
    assert parse(name) == Variant(spec, config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("head_dim", 0),
        ("head_dim", -1),
        ("head_dim", 7),
        ("head_dim", 300),
        ("head_dim", 128.0),
        ("head_dim", True),
        ("head_dim", None),
        ("head_dim_v", 7),
        ("head_dim_v", -8),
        ("dtype", "bf17"),
        ("dtype", "float64"),
        ("dtype", None),
        ("causal", 1),
        ("sinks", "yes"),
    ],
)
def test_each_rule_names_the_field_the_value_and_what_is_allowed(field: str, value: object) -> None:
    with pytest.raises(InvalidSpec) as error:
        AttentionFwd(**{"head_dim": 128, "dtype": "bf16", field: value})  # type: ignore[arg-type]
    message = str(error.value)
    assert message.startswith(f"{field}: got {value!r}, allowed")
    assert field in {rule.name for rule in AttentionFwd.rules}


_ODD = st.one_of(st.none(), st.floats(), st.text(), st.tuples())
_NO_HEAD_DIM = st.one_of(
    _ODD, st.integers().filter(lambda n: n not in HEAD_DIMS), st.sampled_from(HEAD_DIMS).map(float)
)
BROKEN = st.fixed_dictionaries(
    {},
    optional={
        "head_dim": st.one_of(_NO_HEAD_DIM, st.booleans()),
        "head_dim_v": st.one_of(_NO_HEAD_DIM, st.booleans()).filter(lambda n: repr(n) != "0"),
        "dtype": st.one_of(_ODD, st.integers()).filter(lambda dtype: dtype not in DTYPES),
        **{f.name: st.one_of(_ODD, st.integers()) for f in ATTENTION_FEATURES},
    },
)
"""Values that no rule allows, for some of the fields."""


@given(SPECS, BROKEN)
def test_every_rejected_spec_names_the_rules_that_it_breaks(
    spec: Attention, broken: dict[str, Any]
) -> None:
    # The same wrong value is told once.
    dims = [broken[name] for name in ("head_dim", "head_dim_v") if name in broken]
    assume(len(dims) < 2 or dims[0] != dims[1])
    fields = {**asdict(spec), **{name: x for name, x in broken.items() if name in asdict(spec)}}
    broken = {name: value for name, value in fields.items() if name in broken}
    if not broken:
        assert type(spec)(**fields) == spec
        return
    with pytest.raises(InvalidSpec) as error:
        type(spec)(**fields)
    told = str(error.value)
    for rule in spec.rules:
        assert (f"{rule.name}: got {fields[rule.name]!r}, allowed" in told) == (rule.name in broken)


def test_every_broken_rule_is_reported_at_once() -> None:
    with pytest.raises(InvalidSpec) as error:
        AttentionFwd(head_dim=7, dtype="bf17", causal=1)  # type: ignore[arg-type]
    assert [part.split(":")[0] for part in str(error.value).split("; ")] == [
        "head_dim",
        "dtype",
        "causal",
    ]


@pytest.mark.parametrize("op", [AttentionVarlen, AttentionPaged])
@pytest.mark.parametrize("feature", ["bias", "mask"])
def test_packed_sequences_take_no_tensor_of_scores(op: type[AttentionFwd], feature: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{feature}: got True, allowed with {op.op} is False$"):
        op(head_dim=128, dtype="bf16", **{feature: True})


def test_packed_sequences_are_for_the_portable_family() -> None:
    spec = AttentionVarlen(head_dim=128, dtype="bf16", causal=True)
    config = default_config(AttentionFwd(head_dim=128, dtype="bf16", causal=True), "sm90")
    assert (
        why_not(spec, config) == "op: got 'attention_varlen', allowed with sm90 is 'attention_fwd'"
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"block_m": 24}, "block_m: got 24"),
        ({"block_n": 512}, "block_n: got 512"),
        ({"num_warps": 3}, "num_warps: got 3"),
        ({"num_stages": 0}, "num_stages: got 0"),
        ({"backend": "cuda"}, "backend: got 'cuda'"),
    ],
)
def test_a_tile_that_cannot_be_is_refused(change: dict[str, object], word: str) -> None:
    spec = AttentionFwd(head_dim=64, dtype="fp16")
    config = TileConfig(**{**vars(default_config(spec)), **change})
    assert why_not(spec, config) is not None
    with pytest.raises(InvalidSpec, match=word):
        Variant(spec, config)


def test_a_tile_beyond_a_targets_shared_memory_is_refused_with_the_sizes() -> None:
    spec = AttentionFwd(head_dim=256, dtype="bf16")
    config = TileConfig(block_m=128, block_n=128, num_warps=8, num_stages=2)
    reason = why_not(spec, config, TARGETS["sm_89"])
    assert reason is not None and "sm_89 has 101376" in reason and "327680" in reason


def test_the_catalog_has_what_it_promises() -> None:
    specs = {variant.spec for variant in catalog().values()}
    for head_dim in (32, 64, 96, 128, 256):
        for dtype in DTYPES:
            for causal in (False, True):
                assert AttentionFwd(head_dim=head_dim, dtype=dtype, causal=causal) in specs
    for feature in ATTENTION_FEATURES:
        assert any(feature.name in spec.switched_on for spec in specs)
    for op in (AttentionVarlen, AttentionPaged):
        for head_dim in (64, 128):
            for dtype in ("fp16", "bf16"):
                assert op(head_dim=head_dim, dtype=dtype, causal=True) in specs
