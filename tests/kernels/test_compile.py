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

pytest.importorskip("torch", reason="a kernel imports torch")
pytest.importorskip("triton", reason="compiling needs triton")

from attngen.catalog import catalog

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "docs/compile"
REPORTED = [path.stem.removeprefix("triton-") for path in sorted(REPORTS.glob("triton-*.json"))]
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
NEWEST = ROOT / ".venv-newest/bin/python"
"""The interpreter of the environment with the newest Triton."""
D256_SM90 = tuple(f"attention_fwd_d256_{dtype}_m128_n64_w4_s2_sm90" for dtype in ("fp16", "bf16"))
SPILLS = {("3.9.0", "sm_90"): dict.fromkeys(D256_SM90, 104)}
"""Bytes that kernels spill by Triton's version and target: all others spill none.

The Hopper kernels of head dim 256 have no other tile, and every register that there is.
"""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def _version(python: Path) -> str:
    """The version of Triton that an interpreter has."""
    command = [python, "-c", "import triton; print(triton.__version__)"]
    return subprocess.check_output(command, text=True).strip()


def _committed(version: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(
        (REPORTS / f"triton-{version}.json").read_text("utf-8")
    )["records"]
    return records


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("python", [Path(sys.executable), NEWEST], ids=["here", "newest"])
def test_every_committed_kernel_compiles_clean_and_as_reported(python: Path, target: str) -> None:
    if not python.exists():
        assert "CI" not in os.environ, f"{python} is missing: .ci/test makes it"
        pytest.skip("no environment with the newest Triton: .ci/test makes it")
    version = _version(python)
    command = [python, "-m", "attngen.cli", "compile", "--target", target, "--json"]
    result = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert {report["variant"] for report in reports} == set(catalog()), result.stderr
    # Kernels of sm90 are passed over, with the reason, where the target is another.
    compiled = [report for report in reports if "reason" not in report or report["failed"]]
    spilled = SPILLS.get((version, target), {})
    for report in compiled:
        spills = spilled.get(report["variant"], 0)
        clean = {"spills": spills, "serialised": False, "failed": spills > 0}
        assert report | clean == report, f"Triton {version}"
        assert report["shared"] <= report["shared_limit"]
    assert result.returncode == (1 if spilled else 0), result.stderr
    if version in REPORTED:
        expected = [record for record in _committed(version) if record["target"] == target]
        found = [{key: report[key] for key in expected[0]} for report in compiled]
        mend = f"if this is meant, with Triton {version}: python docs/compile_matrix.py"
        assert found == expected, mend


@pytest.mark.parametrize("version", REPORTED)
def test_a_report_has_every_kernel_and_no_spill_that_is_not_named(version: str) -> None:
    wanted = {
        (variant.name, target)
        for variant in catalog().values()
        for target in TARGETS
        if variant.config.backend == "triton" or target == "sm_90"
    }
    records = _committed(version)
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
