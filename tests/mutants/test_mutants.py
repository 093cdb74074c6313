"""Every planted fault is found, by the checks that docs/planted-faults.md names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutant import DoesNotApply, Edit, Mutant, clean_text
from planted_faults_table import PAGE, page
from probes import PROBES, look_up
from roster import COMPILED_PROBE, MUTANTS, clean_pairs, failed
from target_mutants import HARMLESS, ONLY_ON_GPU

from attngen.interpret import interpreting
from attngen.variant import parse

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="mutants run in Triton's interpreter, on a machine without a GPU"
)

HERE = Path(__file__).parent


def _by_name(mutants: object) -> list[object]:
    return [pytest.param(m, id=m.name) for m in mutants]  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the compiler says, asked in a process of its own that does not interpret."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, HERE / "compiled.py"],
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, list[str]] = json.loads(result.stdout.splitlines()[-1])
    return found


def _found(
    request: pytest.FixtureRequest, key: str, kernel: str, text: str, probe: str
) -> set[str]:
    """The checks that a text fails on a probe, run where that probe runs."""
    if probe == COMPILED_PROBE:
        return set(request.getfixturevalue("compiled")[key])
    return failed(kernel, text, probe)


@pytest.mark.parametrize(("kernel", "probe"), clean_pairs())
def test_a_right_kernel_passes(request: pytest.FixtureRequest, kernel: str, probe: str) -> None:
    found = _found(request, f"{kernel}: {probe}", kernel, clean_text(kernel), probe)
    assert found == set()


@pytest.mark.parametrize("mutant", _by_name(MUTANTS.values()))
def test_a_mutant_is_killed(request: pytest.FixtureRequest, mutant: Mutant) -> None:
    assert mutant.killed_by, "no check is said to kill it"
    found = _found(request, mutant.name, mutant.kernel, mutant.text(), mutant.probe)
    assert found == mutant.killed_by


@pytest.mark.parametrize("mutant", _by_name(ONLY_ON_GPU))
def test_a_fault_that_a_cpu_cannot_show(mutant: Mutant) -> None:
    """If one of these fails, a check has become sharper: list the mutant among the others."""
    assert failed(mutant.kernel, mutant.text(), mutant.probe) == set()


@pytest.mark.parametrize("mutant", _by_name(HARMLESS))
def test_a_change_that_is_no_fault_here(mutant: Mutant) -> None:
    assert failed(mutant.kernel, mutant.text(), mutant.probe) == set()


def test_a_change_of_the_templates_shows() -> None:
    """An edit whose text is gone, or stands there more often than meant, is an error."""
    assert Edit("b", "x", count=2, at=1).apply("abcb") == "abcx"
    assert Edit("b", "x", count=2).apply("abcb") == "axcx"
    for edit in (Edit("z", "x"), Edit("b", "x")):
        with pytest.raises(DoesNotApply):
            edit.apply("abcb")


def test_the_kernels_and_probes_exist() -> None:
    for mutant in (*MUTANTS.values(), *ONLY_ON_GPU, *HARMLESS):
        assert parse(mutant.kernel).name == mutant.kernel
        assert mutant.text() != clean_text(mutant.kernel)
        assert callable(look_up(mutant.probe))
    unused = set(PROBES) - {mutant.probe for mutant in MUTANTS.values()}
    assert not unused, "probes that no mutant uses"


def test_the_page_says_what_the_mutants_say() -> None:
    mend = "python tests/mutants/planted_faults_table.py"
    assert PAGE.read_text(encoding="utf-8") == page(), f"mend with: {mend}"
