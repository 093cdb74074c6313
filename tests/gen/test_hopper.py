"""The Hopper family without a GPU: rules, names, text, the command line, which kernel is found."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attngen import store
from attngen.catalog import catalog
from attngen.cli import main
from attngen.config import TARGETS, TileConfig
from attngen.errors import InvalidSpec
from attngen.ops import default_config, why_no_tile, why_not
from attngen.render import render
from attngen.spec_attention import ATTENTION_FEATURES, AttentionFwd
from attngen.variant import Variant, parse

CAUSAL = "attention_fwd_d128_bf16_causal_m128_n128_w4_s2_sm90"
FULL = CAUSAL.replace("_causal", "")
NAMES = [name for name in catalog() if name.endswith("_sm90")]


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_names_of_the_design() -> None:
    spec = AttentionFwd(head_dim=128, dtype="bf16", causal=True)
    config = TileConfig(block_m=128, block_n=128, num_warps=4, num_stages=2, backend="sm90")
    assert parse(CAUSAL) == Variant(spec, config) and Variant(spec, config).name == CAUSAL
    assert config == default_config(spec, "sm90")


def test_the_catalog_has_every_head_dim_dtype_and_both_masks() -> None:
    specs = {parse(name).spec for name in NAMES}
    wanted = itertools.product((64, 96, 128, 256), ("fp16", "bf16"), (False, True))
    expected = {AttentionFwd(head_dim=d, dtype=t, causal=c) for d, t, c in wanted}
    assert specs == {spec for spec in expected if not (spec.head_dim == 256 and spec.causal)}
    assert len(NAMES) == 14


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dtype": "fp32"}, "dtype: got 'fp32', allowed with sm90 are fp16, bf16"),
        ({"head_dim": 256}, "causal: got True, allowed with sm90 at head dim 256 is False"),
        ({"head_dim": 80}, "head_dim: got 80, allowed with sm90 are 64, 96, 128, 256"),
        ({"head_dim_v": 64}, "head_dim_v: got 64, allowed with sm90 is head_dim (128)"),
        *(
            ({f.name: True}, f"{f.name}: got True, allowed with sm90 is no feature but causal")
            for f in ATTENTION_FEATURES
            if f.name != "causal"
        ),
    ],
)
def test_what_the_family_cannot_do_is_refused_with_the_reason(
    change: dict[str, Any], told: str
) -> None:
    spec = AttentionFwd(**{"head_dim": 128, "dtype": "bf16", "causal": True, **change})
    assert why_no_tile(spec, "sm90") == told and why_no_tile(spec, "triton") is None
    for make in (
        lambda: default_config(spec, "sm90"),
        lambda: Variant(spec, parse(CAUSAL).config),
    ):
        with pytest.raises(InvalidSpec) as error:
            make()
        assert str(error.value) == told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("_m128", "_m192", "block_m: got 192, allowed with sm90 at this head dim is 128"),
        ("_n128", "_n64", "block_n: got 64"),
        ("_w4", "_w8", "num_warps: got 8"),
        ("_s2", "_s3", "num_stages: got 3, allowed with sm90 here are 2 to 2"),
        ("_s2", "_s1", "num_stages: got 1"),
    ],
)
def test_a_tile_that_was_not_measured_is_refused(old: str, new: str, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        parse(CAUSAL.replace(old, new))


def test_stages_of_head_dim_64_are_free() -> None:
    for stages in (2, 3, 4):
        name = f"attention_fwd_d64_bf16_m192_n128_w4_s{stages}_sm90"
        assert parse(name).name == name
        assert why_not(parse(name).spec, parse(name).config, TARGETS["sm_90"]) is None


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "sm_90"])
def test_no_other_target_takes_it(target: str) -> None:
    reason = why_not(parse(CAUSAL).spec, parse(CAUSAL).config, TARGETS[target])
    assert reason is not None and f"target: got {target}, allowed is sm_90" in reason


@pytest.mark.parametrize("name", NAMES)
def test_what_the_template_decides_is_gone_from_the_text(name: str) -> None:
    text, spec = render(parse(name)), parse(name).spec
    present = {
        "causal": spec.causal,
        "STRADDLE": spec.causal,
        "EVEN_N": not spec.causal,
        "def masked_block(": spec.causal,
        "wait_turn": spec.head_dim == 64,
        "raise_reference": spec.head_dim == 256,
        "from_lanes": spec.head_dim == 256,
        ".slice(": spec.head_dim == 96,
    }
    assert {word: word in text for word in present} == present
    for word in ("{%", "{{", "if CAUSAL", "LAZY", "if TURNS", "Q_SLOTS", "HEAD_DIM =="):
        assert word not in text


def test_the_schedule_and_the_roles_come_before_the_mathematics() -> None:
    text = render(parse(CAUSAL))
    order = ["The schedule.", "Barriers;", "HEAD_DIM = ", "def producer(", "def consumer("]
    order += ["def next_block(", "def first_softmax(", "def quads(", "def mask_asm("]
    order += [f"def {CAUSAL}(", "def attention_fwd(", "def _check_rows("]
    places = [text.index(word) for word in order]
    assert places == sorted(places)


def test_fp16_and_bf16_differ_in_names_and_constants_alone() -> None:
    diff = store.difference(parse(FULL), parse(FULL.replace("bf16", "fp16")))
    changed = [x[1:] for x in diff.splitlines() if x[:1] == "+" and x[:3] != "+++"]
    assert changed and all("float16" in line or "f16x2" in line for line in changed)


def test_both_families_have_one_launcher_signature() -> None:
    portable = render(parse("attention_fwd_d128_bf16_m64_n32_w4_s4"))
    for text in (portable, render(parse(FULL))):
        start = text.index("def attention_fwd(")
        assert text[start : text.index("-> tuple", start)] == (
            "def attention_fwd(\n    q: torch.Tensor,\n    k: torch.Tensor,\n    v: torch.Tensor,\n"
            "    *,\n    sm_scale: float | None = None,\n    out: torch.Tensor | None = None,\n) "
        )


def test_build_for_hopper_says_which_family_it_takes(tmp_path: Path) -> None:
    words = ["--head-dim", "128", "--dtype", "bf16", "--target", "sm_90", "--out", tmp_path]
    result = run("build", *words)
    assert result.exit_code == 0
    assert "Hopper kernel (sm90) for attention_fwd_d128_bf16_causal" in result.output
    assert store.names(tmp_path) == [CAUSAL, FULL]
    result = run("build", *words, "--causal", "--softcap")
    assert "portable kernel for attention_fwd_d128_bf16_causal_softcap: softcap" in result.output
    assert run("check", tmp_path).exit_code == 0
    assert run("show", CAUSAL).output == (tmp_path / f"{CAUSAL}.py").read_text()


def test_build_for_another_target_is_portable_and_a_target_needs_a_spec(tmp_path: Path) -> None:
    words = ["--head-dim", "128", "--dtype", "bf16", "--no-causal", "--out", tmp_path]
    assert run("build", *words, "--target", "sm_80").exit_code == 0
    assert store.names(tmp_path) == ["attention_fwd_d128_bf16_m64_n32_w4_s4"]
    result = run("build", FULL, "--target", "sm_90", "--out", tmp_path)
    assert result.exit_code == 2 and "--target goes with --head-dim and --dtype" in result.output


def test_verify_in_the_interpreter_passes_it_over_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from attngen.verify import reports

    run("build", FULL, "--out", tmp_path)
    (report,) = reports(None, tmp_path, "cpu")
    assert not report.failed and str(report).startswith(f"skip {FULL}: Gluon")
    assert "does not run in Triton's interpreter" in report.as_dict()["reason"]


def test_which_kernel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from attngen import finder

    spec = parse(FULL).spec
    monkeypatch.setattr(finder, "_load_file", lambda name, path: (name, path.parent))
    portable = "attention_fwd_d128_bf16_m64_n32_w4_s4"
    assert finder.find(spec) == (portable, store.generated())
    assert finder.find(spec, hopper=True) == (FULL, store.generated())
    # The folders of ATTNGEN_KERNELS come first, whatever the family.
    run("build", portable, "--out", tmp_path)
    monkeypatch.setenv("ATTNGEN_KERNELS", str(tmp_path))
    assert finder.find(spec, hopper=True) == (portable, tmp_path)


def _tensor(**change: Any) -> Any:
    facts = {"is_cuda": True, "device": "cuda:0", "shape": (1, 5, 2, 64), "at": 256, "bytes": 2}
    facts |= {"strides": (640, 128, 64, 1)} | change
    return SimpleNamespace(
        is_cuda=facts["is_cuda"],
        device=facts["device"],
        shape=facts["shape"],
        numel=lambda: 0 if 0 in facts["shape"] else 640,
        data_ptr=lambda: facts["at"],
        stride=lambda: facts["strides"],
        element_size=lambda: facts["bytes"],
    )


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, True),
        ({"at": 264}, False),
        ({"strides": (640, 129, 64, 1)}, False),
        ({"strides": (641, 128, 64, 1)}, True),
        ({"shape": (1, 0, 2, 64)}, False),
        ({"is_cuda": False}, False),
        ({"device": "cuda:1"}, False),
    ],
)
def test_what_the_bulk_copy_engine_takes(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], taken: bool
) -> None:
    pytest.importorskip("torch")
    from attngen import runtime

    monkeypatch.setattr(runtime, "is_hopper", lambda device: device == "cuda:0")
    monkeypatch.setattr(runtime.interpret, "interpreting", lambda: False)
    assert runtime._takes_bulk_copies([_tensor(), _tensor(**change)]) is taken
    monkeypatch.setattr(runtime.interpret, "interpreting", lambda: True)
    assert not runtime._takes_bulk_copies([_tensor()])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_without_spills(name: str) -> None:
    """In a process of its own: this one may have been told to interpret."""
    import os
    import subprocess
    import sys

    pytest.importorskip("triton")
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    words = ["compile", name, "--target", "sm_90", "--target", "sm_80", "--json"]
    command = [sys.executable, "-m", "attngen.cli", *words]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    refused, report = (json.loads(line) for line in result.stdout.splitlines())
    assert "allowed is sm_90" in refused["reason"]
    assert report["spills"] == 0 and not report["serialised"] and not report["failed"]
