"""Specs, tiles, names and texts of row softmax, as those of attention are tested."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attngen.catalog import catalog
from attngen.config import TileConfig
from attngen.errors import InvalidSpec
from attngen.ops import default_config, why_no_tile, why_not
from attngen.render import render
from attngen.spec import DTYPES
from attngen.spec_softmax import ALGORITHMS, OUT_DTYPES, Softmax, SoftmaxTopk
from attngen.variant import Variant, parse


def _softmax(columns: int, dtype: str, algorithm: str, out: str | None, flags: Any) -> Softmax:
    assume(out is None or OUT_DTYPES[out] != dtype)
    features = {algorithm: True, **({out: True} if out else {})}
    names = ("log", "lse", "mask", "scaled")
    return Softmax(columns=columns, dtype=dtype, **features, **dict(zip(names, flags, strict=True)))


SOFTMAX = st.builds(
    _softmax,
    st.integers(1, 32768),
    st.sampled_from(DTYPES),
    st.sampled_from(ALGORITHMS),
    st.sampled_from([None, *OUT_DTYPES]),
    st.tuples(*[st.booleans()] * 4),
)
TOPK = st.builds(
    SoftmaxTopk,
    columns=st.integers(1, 2**30),
    k=st.integers(1, 64),
    dtype=st.sampled_from(DTYPES),
)
quick = settings(settings.get_profile("fixtures"), max_examples=20)


@given(SOFTMAX | TOPK)
def test_parse_inverts_names(spec: Softmax | SoftmaxTopk) -> None:
    variant = Variant(spec, default_config(spec))
    assert parse(variant.name) == variant


@given(SOFTMAX | TOPK)
@quick
def test_every_spec_renders_formatted(tmp_path: Path, spec: Softmax | SoftmaxTopk) -> None:
    variant = Variant(spec, default_config(spec))
    path = tmp_path / f"{variant.name}.py"
    path.write_text(render(variant))
    ast.parse(path.read_text())
    root = Path(__file__).parents[2] / "pyproject.toml"
    for check in (["format", "--check", "--diff"], ["check"]):
        command = [sys.executable, "-m", "ruff", *check, "--no-cache", "--config", root, path]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout
    path.unlink()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_spec_leaves_out_is_gone_from_the_text(algorithm: str) -> None:
    spec = Softmax(columns=1024, dtype="bf16", **{algorithm: True})
    text = render(Variant(spec, default_config(spec)))
    for word in ("lse_ptr", "visible", "sign", "temperature", "log_l", "{%", "{{"):
        assert word not in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"columns": 0}, "columns: got 0, allowed is 1 to 32768 with single"),
        ({"columns": 32769}, "columns: got 32769, allowed is 1 to 32768 with single"),
        ({"columns": True}, "columns: got True"),
        ({"dtype": "fp8"}, "dtype: got 'fp8', allowed are fp16, bf16, fp32"),
        (
            {"single": False},
            "safe, online, single, split: got none of them, allowed is exactly one",
        ),
        ({"online": True}, "safe, online, single, split: got online, single, allowed is exactly"),
        ({"out_bf16": True}, "out_fp16, out_bf16, out_fp32: got out_bf16, allowed is at most one"),
        ({"out_fp16": True, "out_fp32": True}, "got out_fp16, out_fp32, allowed is at most one"),
        ({"log": 1}, "log: got 1, allowed are True, False"),
    ],
)
def test_each_rule_names_the_field_the_value_and_what_is_allowed(
    change: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSpec) as error:
        Softmax(**{"columns": 1024, "dtype": "bf16", "single": True, **change})
    assert told in str(error.value)


@pytest.mark.parametrize("k", [0, 65, -1, True, 2.0])
def test_a_k_that_cannot_be_is_refused(k: Any) -> None:
    with pytest.raises(InvalidSpec, match=f"k: got {k!r}, allowed is 1 to 64"):
        SoftmaxTopk(columns=1024, k=k, dtype="bf16")


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        (
            "softmax_c1024_bf16_single_m2_w4_s1",
            {"block_m": 3},
            "block_m: got 3, allowed is a power",
        ),
        ("softmax_c1024_bf16_single_m2_w4_s1", {"block_m": 16}, "gives each thread 128 columns"),
        ("softmax_c1024_bf16_single_m2_w4_s1", {"block_n": 64}, "block_n: got 64, allowed is 0"),
        ("softmax_c1024_bf16_online_n2048_w4_s1", {"block_n": 512}, "allowed is at least 1024"),
        ("softmax_c1024_bf16_online_n2048_w4_s1", {"block_m": 1}, "block_m: got 1, allowed is 0"),
        ("softmax_c1024_bf16_online_n2048_w4_s1", {"num_warps": 32}, "num_warps: got 32"),
        ("softmax_c1024_bf16_online_n2048_w4_s1", {"num_stages": 0}, "num_stages: got 0"),
        ("softmax_c1024_bf16_split_n8192_w8_s1", {"num_warps": 2}, "gives each thread 128 columns"),
    ],
)
def test_a_tile_that_cannot_be_is_refused(name: str, change: dict[str, int], told: str) -> None:
    variant = parse(name)
    config = TileConfig(**{**vars(variant.config), **change})
    reason = why_not(variant.spec, config)
    assert reason is not None and told in reason


def test_there_is_no_hopper_kernel_of_rows() -> None:
    spec = Softmax(columns=1024, dtype="bf16", single=True)
    assert why_no_tile(spec, "sm90") == "op: got softmax, allowed with sm90 is attention_fwd"


def test_the_catalog_has_rows_of_every_dtype() -> None:
    specs = {variant.spec for variant in catalog().values()}
    for dtype in DTYPES:
        assert Softmax(columns=8192, dtype=dtype, single=True) in specs
        assert Softmax(columns=262144, dtype=dtype, online=True) in specs
