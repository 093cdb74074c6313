"""The reference as a package: its public names, what it imports, how its modules stand."""

import ast
import inspect
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import attngen.reference as reference

FOLDER = Path(reference.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
PREFIX = "attngen.reference."


def imported(path):
    """Full names of the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_the_public_names():
    assert set(reference.__all__) == {
        "attention",
        "attention_paged",
        "attention_varlen",
        "cascade_attention",
        "cost",
        "error_budget",
        "log_softmax",
        "logits",
        "logsumexp",
        "merge_budget",
        "merge_state",
        "merge_states",
        "naive_softmax",
        "online_attention",
        "online_softmax",
        "safe_softmax",
        "softmax_budget",
        "softmax_topk",
        "statistical_budget",
    }
    assert inspect.isfunction(reference.attention)
    assert inspect.ismodule(reference.cost)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_numpy_and_the_standard_library_are_enough(path):
    for name in imported(path):
        root = name.split(".")[0]
        assert root in sys.stdlib_module_names or root == "numpy" or name.startswith(PREFIX[:-1])


def test_imports_go_one_way():
    graph = {
        path.stem: {name.removeprefix(PREFIX) for name in imported(path) if PREFIX in name}
        for path in MODULES
        if path.stem != "__init__"
    }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("rounding") < order.index("scores") < order.index("attention")


def test_importing_it_imports_neither_torch_nor_triton():
    code = (
        "import attngen.reference, sys;"
        "sys.exit(bool({'torch', 'triton', 'jinja2', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 300
