"""Committed kernels compiled for GPUs that are not there, by the oldest and the newest Triton."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compile_matrix import digest

pytest.importorskip("torch", reason="a kernel imports torch")
pytest.importorskip("triton", reason="compiling needs triton")

from attngen.catalog import catalog
from attngen.config import TARGETS as CONFIG_TARGETS
from attngen.ops import wrong_target
from attngen.variant import Variant

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "docs/compile"
REPORTED = [path.stem.removeprefix("triton-") for path in sorted(REPORTS.glob("triton-*.json"))]
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
NEWEST = ROOT / ".venv-newest/bin/python"
"""The interpreter of the environment with the newest Triton."""
HOPPER_D256 = "attention_fwd_d256_{}_m128_n64_w4_s2_sm90"
DENSE_D128 = "attention_decode_d128_{}_m16_n32_w2_s4"
PAGED_D128 = "attention_decode_d128_{}_paged_m16_n32_w4_s5"
DENSE_D256 = "attention_decode_d256_{}_m16_n32_w4_s3"


def _each(spills: dict[str, int]) -> dict[str, int]:
    return {name.format(t): n for name, n in spills.items() for t in ("fp16", "bf16")}


SPILLS = {
    ("3.9.0", "sm_80"): _each({DENSE_D256: 4, PAGED_D128: 4, PAGED_D128.format("bf16_softcap"): 4}),
    ("3.9.0", "sm_90"): _each({HOPPER_D256: 104, DENSE_D128: 8}),
    ("3.9.0", "sm_100"): _each({DENSE_D128: 8, DENSE_D256: 4, PAGED_D128.format("bf16_alibi"): 24}),
}
"""Bytes that kernels spill by Triton's version and target: all others spill none.

The Hopper kernels of head dim 256 have no other tile, and every register that there is. Of decode
it is the call with one split, outside its loop, for the sake of one more program a processor.
"""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def _version(python: Path) -> str:
    """The version of Triton that an interpreter has."""
    command = [python, "-c", "import triton; print(triton.__version__)"]
    return subprocess.check_output(command, text=True).strip()


def _report(version: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((REPORTS / f"triton-{version}.json").read_text("utf-8"))
    return report


def _sample(target: str) -> list[str]:
    """Every eighth kernel, others for each target: the reports have all of them."""
    names = [name for name, v in catalog().items() if _is_for(v, target)]
    return names[TARGETS.index(target) :: 8]


def _is_for(variant: Variant, target: str) -> bool:
    return wrong_target(variant.spec, variant.config, CONFIG_TARGETS[target]) is None


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("python", [Path(sys.executable), NEWEST], ids=["here", "newest"])
def test_kernels_compile_clean_and_as_reported(python: Path, target: str) -> None:
    if not python.exists():
        assert "CI" not in os.environ, f"{python} is missing: .ci/test makes it"
        pytest.skip("no environment with the newest Triton: .ci/test makes it")
    version, names = _version(python), _sample(target)
    command = [python, "-m", "attngen.cli", "compile", *names, "--target", target, "--json"]
    result = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [report["variant"] for report in reports] == names, result.stderr
    for report in reports:
        spills = SPILLS.get((version, target), {}).get(report["variant"], 0)
        clean = {"spills": spills, "serialised": False, "failed": spills > 0}
        assert report | clean == report, f"Triton {version}"
        assert report["shared"] <= report["shared_limit"]
    if version in REPORTED:
        records = _report(version)["records"]
        expected = {r["variant"]: r for r in records if r["target"] == target}
        for report in reports:
            found = {key: report[key] for key in expected[report["variant"]]}
            mend = f"if this is meant, with Triton {version}: python docs/compile_matrix.py"
            assert found == expected[report["variant"]], mend


@pytest.mark.parametrize("version", REPORTED)
def test_a_report_is_about_the_kernels_of_today(version: str) -> None:
    """With Triton's version, a kernel's text and calls decide what the compiler makes of it."""
    digests = {name: digest(variant) for name, variant in catalog().items()}
    assert digests == _report(version)["digests"], f"Triton {version}: docs/compile_matrix.py"


@pytest.mark.parametrize("version", REPORTED)
def test_a_report_has_every_kernel_and_no_spill_that_is_not_named(version: str) -> None:
    wanted = {
        (variant.name, target)
        for variant in catalog().values()
        for target in TARGETS
        if _is_for(variant, target)
    }
    records = _report(version)["records"]
    assert {(record["variant"], record["target"]) for record in records} == wanted
    for target in TARGETS:
        spilled = {r["variant"]: r["spills"] for r in records if r["target"] == target}
        named = SPILLS.get((version, target), {})
        assert {name: spills for name, spills in spilled.items() if spills} == named


def test_the_oldest_and_the_newest_triton_are_reported() -> None:
    """`.ci/setup` and `.ci/test` say which Triton there is to be."""
    script = (ROOT / ".ci/test").read_text() + (ROOT / ".ci/setup").read_text()
    assert sorted(set(re.findall(r"\b3\.\d+\.\d+\b", script))) == REPORTED


def test_a_tile_that_does_not_fit_fails_with_the_numbers() -> None:
    name = "attention_fwd_d256_bf16_m128_n128_w8_s2"
    command = [sys.executable, "-m", "attngen.cli", "compile", name, "--target", "sm_89"]
    result = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.startswith("FAIL") and "of 101376 bytes shared" in result.stdout
