"""Every accepted spec compiles at its default tile: a sample of them, for two makes of GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="a kernel imports torch")
pytest.importorskip("triton", reason="compiling needs triton")

from hypothesis import Phase, given, settings
from test_names import SPECS

from attngen.ops import default_config
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant

ONCE_REFUSED = (
    # Triton 3.6 pipelined these loads of bias for AMD, and could not translate what it made.
    AttentionFwd(head_dim=16, dtype="fp32", bias=True),
    AttentionFwd(head_dim=32, dtype="fp32", causal=True, softcap=True, bias=True),
)
MOST_SPILLS = 128
"""Bytes a thread (registers on AMD): what several features at once may spill at a default tile."""


def _drawn() -> list[AttentionFwd]:
    """A few specs, the same ones each time: compiling takes seconds, so none is shrunk."""
    drawn: list[AttentionFwd] = []

    @settings(max_examples=10, derandomize=True, database=None, phases=[Phase.generate])
    @given(SPECS)
    def draw(spec: AttentionFwd) -> None:
        drawn.append(spec)

    draw()
    return drawn


def _compiled(specs: list[AttentionFwd]) -> list[dict[str, object]]:
    names = [Variant(spec, default_config(spec)).name for spec in specs]
    command = [sys.executable, "-m", "attngen.cli", "compile", *names, "--json"]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    targets = ("--target", "sm_90", "--target", "gfx942")
    result = subprocess.run([*command, *targets], env=env, capture_output=True, text=True)
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(reports) == 2 * len(names), result.stderr
    return reports


@pytest.mark.slow
def test_specs_compile_and_fit() -> None:
    for report in _compiled([*ONCE_REFUSED, *_drawn()]):
        assert "reason" not in report, report
        assert report["shared"] <= report["shared_limit"], report  # type: ignore[operator]
        assert report["spills"] <= MOST_SPILLS, report  # type: ignore[operator]
        assert not report["serialised"], report


@pytest.mark.slow
def test_padded_float32_rows_do_not_spill() -> None:
    specs = [
        AttentionFwd(head_dim=head_dim, dtype="fp32", causal=causal)
        for head_dim in (136, 192, 248)
        for causal in (False, True)
    ]
    assert [report for report in _compiled(specs) if report["failed"]] == []
