"""Lint, format and types of everything, kernels included, in one place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*words: str | Path, cwd: Path = ROOT) -> None:
    command = [sys.executable, "-m", *map(str, words)]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_lint() -> None:
    pytest.importorskip("ruff")
    _run("ruff", "check", ".")


def test_format() -> None:
    pytest.importorskip("ruff")
    _run("ruff", "format", "--check", ".")


def test_types_of_the_package_as_it_is_installed(tmp_path: Path) -> None:
    """The folders are mapped to a package that type checkers cannot see, so it is laid out."""
    pytest.importorskip("mypy")
    package = tmp_path / "attngen"
    package.mkdir()
    for path in (ROOT / "gen").iterdir():
        (package / path.name).symlink_to(path)
    for folder in ("reference", "templates", "generated"):
        (package / folder).symlink_to(ROOT / folder)
    cache = ROOT / ".mypy_cache"
    _run(
        "mypy",
        "--config-file",
        ROOT / "pyproject.toml",
        "--cache-dir",
        cache,
        "-p",
        "attngen",
        cwd=tmp_path,
    )
