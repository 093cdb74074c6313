"""The tables of what tuning gained, from a file made by hand."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from attngen import winners
from attngen.config import TARGETS
from attngen.machine import Machine
from attngen.winners import Record, Timing, Winners

ROOT = Path(__file__).parents[2]
HOPPER = "m128_n128_w4_s2_sm90"
DEFAULT = "m64_n32_w4_s4"
LARGE = "m128_n128_w8_s3"  # 229 KB: more than an L40S or an A100 has


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tuned_tables", ROOT / "docs/tuned_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tuned_tables"] = module
    spec.loader.exec_module(module)
    return module


def tuned() -> Winners:
    long = Timing({HOPPER: 10.0, LARGE: 16.0, DEFAULT: 20.0, "m16_n64_w4_s2": 1.0})
    short = Timing({HOPPER: 8.0, LARGE: 4.0, DEFAULT: 4.0})
    long.repeatable, short.repeatable = [HOPPER, LARGE], [DEFAULT, HOPPER]
    record = Record([HOPPER, LARGE, DEFAULT], {"m16_n64_w4_s2": "wrong"})
    record.buckets = {"seqlen_q=8192 seqlen_kv=8192 heads=32": long, "seqlen_q=1 heads=1": short}
    machine = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")
    return Winners(machine, {}, {"attention_fwd_d128_bf16": record})


def test_the_gain_over_the_default(tables: ModuleType) -> None:
    portable, called = tables.gains(tuned())[2:]
    # sqrt(20 / 16 * 4 / 4) = 1.12; a call gets the Hopper default, 8 over 4 on short shapes.
    assert portable == "| portable | attention_fwd bf16 | 2 | 1 | 1.12 | 1.25 |"
    assert called == "| what a call gets | attention_fwd bf16 | 2 | 1 | 1.41 | 2.00 |"


def test_what_the_wrong_gpus_winners_cost(tables: ModuleType) -> None:
    rows = {line.split(" | ")[0].strip("| "): line for line in tables.elsewhere(tuned())[2:]}
    # On an L40S the long winner is of no use; with its limits the long shape takes twice as long.
    assert rows["sm_89"] == "| sm_89 | 2 | 1 | 1 target | 1.41 | 2.00 |"
    assert rows["sm_90"] == "| sm_90 | 2 | 0 | - | 1.00 | 1.00 |"
    assert "gfx942" not in rows
    # A B200 has the shared memory but not the family: the large portable tile is next.
    assert rows["sm_100"] == "| sm_100 | 2 | 1 | 1 target | 1.26 | 1.60 |"


def test_limits_that_nothing_fits(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(TARGETS["sm_86"], shared_memory=1000)
    monkeypatch.setattr(tables, "TARGETS", {"tiny": tiny})
    (row,) = tables.elsewhere(tuned())[2:]
    assert row == "| sm_86 | 2 | 2 | 1 target, 1 shared memory | none fits | none fits |"


def test_the_page_of_a_file_and_of_none(tables: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "nvidia-h200.json"
    winners.write(path, tuned())
    assert tables.page([path]).startswith("## NVIDIA H200, Triton 3.6.0\n\n| family |")
    assert "No GPU has been tuned" in tables.page([])
