"""Committed kernels compiled for GPUs that are not there: no spills, and within shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="a kernel imports torch")
pytest.importorskip("triton", reason="compiling needs triton")

from attngen.catalog import catalog

REPORTS = Path(__file__).parents[2] / "docs/compile"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_every_committed_kernel_compiles_clean_and_as_reported(target: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "attngen.cli", "compile", "--target", target, "--json"]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [report for report in reports if report["failed"]] == []
    assert {report["variant"] for report in reports} == set(catalog())
    assert result.returncode == 0, result.stderr
    committed = REPORTS / f"triton-{version('triton')}.json"
    if committed.exists():
        records = json.loads(committed.read_text())["records"]
        expected = [record for record in records if record["target"] == target]
        # Kernels of sm90 are passed over, with the reason, where the target is another.
        compiled = [report for report in reports if "reason" not in report]
        found = [{key: report[key] for key in expected[0]} for report in compiled]
        assert found == expected, "if this is meant: python docs/compile_matrix.py"


def test_a_tile_that_does_not_fit_fails_with_the_numbers() -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    name = "attention_fwd_d256_bf16_m128_n128_w8_s2"
    command = [sys.executable, "-m", "attngen.cli", "compile", name, "--target", "sm_89"]
    result = subprocess.run(command, env=env, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.startswith("FAIL") and "of 101376 bytes shared" in result.stdout
