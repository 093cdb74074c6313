"""Every public report is tested by name, or elsewhere, or owed by an issue that is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rows import ELSEWHERE, GPU_ONLY, OWED, ROWS

TESTS = Path(__file__).parents[1]


def named() -> set[str]:
    """The rows that a test below tests/ is named after."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        found |= set(re.findall(r"^def test_(b\d\d)_", path.read_text("utf-8"), flags=re.M))
    return {name.upper() for name in found}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_tested_or_owed(row: str) -> None:
    assert row in named() | set(ELSEWHERE) | set(OWED)


def test_what_is_named_is_a_row() -> None:
    assert len(set(ROWS)) == len(ROWS) == 37
    assert named() | set(ELSEWHERE) | set(OWED) | set(GPU_ONLY) <= set(ROWS)


@pytest.mark.parametrize("row", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(row: str) -> None:
    for file, names in ELSEWHERE[row].items():
        text = (TESTS / file).read_text("utf-8")
        for name in names:
            assert f"def {name}(" in text, f"{file} has no {name} any more: say in rows.py what has"


def test_what_a_cpu_cannot_show_is_tested_on_a_gpu() -> None:
    marked = [p for p in TESTS.rglob("test_*.py") if "mark.gpu" in p.read_text("utf-8")]
    text = "\n".join(path.read_text("utf-8") for path in marked)
    for row in GPU_ONLY:
        assert f"def test_{row.lower()}_" in text


def test_what_is_owed_says_by_which_issue() -> None:
    for owed in OWED.values():
        assert owed
        for issue, what in owed:
            assert issue > 0
            assert what
