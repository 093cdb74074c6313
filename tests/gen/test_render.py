"""Rendered text: formatted, standalone, free of what the template decided, the same everywhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_names import SPECS, merges

from attngen import store
from attngen.catalog import catalog
from attngen.ops import default_config
from attngen.render import render
from attngen.spec import Spec
from attngen.spec_attention import AttentionDecode, AttentionFwd, AttentionPaged
from attngen.variant import Variant, parse

LONGEST = {"head_dim": 256, "head_dim_v": 128, "dtype": "bf16", "causal": True, "window": True}
LONGEST |= {"softcap": True, "alibi": True, "sinks": True}
CAUSAL = "attention_fwd_d128_bf16_causal_m128_n64_w8_s2"


def _variant(spec: Spec) -> Variant:
    return Variant(spec, default_config(spec))


@given(SPECS)
@settings(max_examples=25)
def test_every_spec_renders_to_a_module_that_imports_torch_and_triton_alone(
    spec: Spec,
) -> None:
    tree = ast.parse(render(_variant(spec)))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - sys.stdlib_module_names == {"torch", "triton"}


@given(st.one_of(SPECS, merges()))
@example(spec=AttentionDecode(**LONGEST, paged=True))
@example(spec=AttentionPaged(**LONGEST))
@example(spec=AttentionFwd(**LONGEST, bias=True, mask=True))
@settings(settings.get_profile("fixtures"), max_examples=12)
def test_every_spec_renders_formatted(tmp_path: Path, spec: Spec) -> None:
    variant = _variant(spec)
    path = tmp_path / f"{variant.name}.py"
    path.write_text(render(variant))
    root = Path(__file__).parents[2] / "pyproject.toml"
    for check in (["format", "--check", "--diff"], ["check"]):
        command = [sys.executable, "-m", "ruff", *check, "--no-cache", "--config", root, path]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout
    path.unlink()


def test_full_blocks_carry_no_mask_arithmetic() -> None:
    text = render(parse(CAUSAL))
    full = text.split("# Blocks that every row of the tile sees whole.")[1].split("# Blocks that")[
        0
    ]
    for word in ("visible", "where", "mask", "seen", "<="):
        assert word not in full
    assert "visible" in text


def test_what_the_template_decides_is_gone_from_the_text() -> None:
    text = render(parse("attention_fwd_d128_bf16_m128_n64_w8_s2"))
    for word in ("causal", "window", "softcap", "alibi", "bias", "sinks", "{%", "{{", "CAUSAL"):
        assert word not in text


def test_two_tiles_differ_in_the_constants_alone() -> None:
    diff = store.difference(parse(CAUSAL), parse(CAUSAL.replace("n64", "n32")))
    changed = [
        line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    first = "One program computes 128 query rows of one head, {} keys at a time, and keeps for"
    first += " each row the"
    assert changed == [
        f"-{first.format(64)}",
        f"+{first.format(32)}",
        "-BLOCK_N = tl.constexpr(64)",
        "+BLOCK_N = tl.constexpr(32)",
    ]


@pytest.mark.parametrize("feature", ["causal", *(f.name for f in AttentionFwd.features[1:])])
def test_what_a_feature_costs_in_a_kernel(feature: str) -> None:
    """The snapshots are read by people; `python tests/gen/write_diffs.py` writes them anew."""
    from write_diffs import FOLDER, feature_diff

    assert (FOLDER / f"{feature}.diff").read_text() == feature_diff(feature)


@pytest.mark.parametrize("layout", ["varlen", "paged"])
def test_what_a_layout_costs_in_a_kernel(layout: str) -> None:
    from write_diffs import FOLDER, layout_diff

    assert (FOLDER / f"{layout}.diff").read_text() == layout_diff(layout)


def test_what_is_committed_is_what_the_templates_render() -> None:
    assert list(store.compare(store.generated(), catalog().values())) == []
