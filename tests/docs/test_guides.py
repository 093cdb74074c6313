"""The guides' commands: each `sh` block is run, and prints what the `text` block below it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs").rglob("*.md"))
NEEDS_GPU = "# needs a GPU\n"
NEEDS = {"verify": "triton", "compile": "triton", "plots.py": "matplotlib", "--plot": "matplotlib"}


@dataclass(frozen=True)
class Block:
    page: str
    number: int
    commands: str
    printed: str | None

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks() -> list[Block]:
    found = []
    for page in GUIDES:
        pattern = r"^```sh\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?"
        matches = re.findall(pattern, page.read_text(), flags=re.MULTILINE | re.DOTALL)
        name = str(page.relative_to(ROOT / "docs"))
        for i, (commands, printed) in enumerate(matches):
            found.append(Block(name, i, commands, printed or None))
    return found


def shell(folder: Path, commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands as a reader does: in a folder with the checkout's docs, attngen installed."""
    programs = folder / ".programs"
    programs.mkdir()
    for name, module in (("python", ""), ("attngen", "-m attngen.cli")):
        (programs / name).write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n'
        )
        (programs / name).chmod(0o755)
    (folder / "docs").symlink_to(ROOT / "docs")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", commands]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_a_block_of_commands(block: Block, tmp_path: Path) -> None:
    if block.commands.startswith(NEEDS_GPU):
        pytest.skip("it needs a GPU, and says so")
    for word, package in NEEDS.items():
        if word in block.commands:
            pytest.importorskip(package)
    result = shell(tmp_path, block.commands)
    assert result.returncode == 0, result.stdout + result.stderr
    if block.printed is not None:
        assert result.stdout == block.printed


def test_every_guide_but_the_logs_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for page in GUIDES:
        assert page.name == "README.md" or f"({page.relative_to(ROOT / 'docs')})" in index
    assert "(performance/README.md)" in index


def test_blocks_are_found_and_the_gpu_is_the_exception() -> None:
    found = blocks()
    assert len(found) >= 10
    exceptions = [b.page for b in found if b.commands.startswith(NEEDS_GPU)]
    assert exceptions == ["performance/README.md", "tuning.md"]


def test_a_mask_without_its_line_in_the_template_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example's verification sees whether the kernels have the mask."""
    pytest.importorskip("triton")
    script = (ROOT / "docs/examples/strided_mask.py").read_text()
    assert script.count("key_stride == 0\\n") == 2
    broken = script.replace("% key_stride == 0\\n", "% key_stride >= 0\\n")
    broken = broken.replace("Path(__file__).resolve().parents[2]", f"Path({str(ROOT)!r})")
    (tmp_path / "broken.py").write_text(broken)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    command = [sys.executable, str(tmp_path / "broken.py")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "FAIL attention_fwd_d32_fp16_strided" in result.stdout
