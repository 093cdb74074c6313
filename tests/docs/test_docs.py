"""Pages say what is so: tables come from results, commands exist, links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attngen.cli import main
from attngen.variant import parse

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _tables():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs/tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_was_measured() -> None:
    tables = _tables()
    for page in tables.PAGES:
        text = page.read_text()
        assert "<!-- table: " in text
        assert text == tables.with_tables(text), "mend with: python docs/tables.py"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/performance").rglob("*.json")), ids=str)
def test_results_say_what_they_were_measured_with(path: Path) -> None:
    results = json.loads(path.read_text())
    assert {"device", "driver", "torch", "triton", "date", "command"} <= set(results)
    for record in results["records"]:
        if "variant" in record:
            assert parse(record["variant"]).name == record["variant"]
        if "ratio" in record:
            speeds = record["value"], record["peers"][record["best_peer"]]
            ours, peers = speeds if record["metric"] != "us" else speeds[::-1]
            assert record["ratio"] == pytest.approx(ours / peers, rel=0.05)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    commands = "|".join(main.commands)
    for line in re.findall(rf"attngen ((?:{commands})[^\n`|&]*)", page.read_text()):
        command, *words = line.split()
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        help_text = CliRunner().invoke(main, [command, "--help"]).output
        for option in options:
            assert option.rstrip("],.;") in help_text, line


def test_the_vendored_example_of_the_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (name,) = set(re.findall(r"attention_fwd_d128_bf16_causal\w+", text))
    words = ["build", "--head-dim", "128", "--dtype", "bf16", "--causal", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert [path.stem for path in tmp_path.iterdir()] == [name]


def test_the_main_job_of_the_readme() -> None:
    """The first command without its set-up; torch decides whether there is a GPU."""
    pytest.importorskip("torch")
    text = (ROOT / "README.md").read_text()
    (line,) = re.findall(r"^\.ci/setup && (.*verify.*)$", text, flags=re.MULTILINE)
    for command in line.split(" && "):
        words = command.replace(".venv/bin/attngen", "").split()
        run = [sys.executable, "-m", "attngen.cli", *words]
        result = subprocess.run(run, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    assert "worst o" in result.stdout and "budget" in result.stdout
