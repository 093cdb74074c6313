"""What imports what, what an import costs, and that generating needs neither torch nor triton."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import attngen
from attngen import store

ROOT = Path(__file__).parents[2]
GEN = ROOT / "gen"

# Each module, and the modules of gen/ that it may import; the arrows point one way.
ARROWS = {
    "errors": "",
    "spec": "errors",
    "spec_attention": "spec",
    "config": "",
    "tiles_attention": "config spec_attention",
    "tiles_decode": "config spec_attention tiles_attention",
    "spec_merge": "spec",
    "tiles_merge": "config spec_merge",
    "spec_softmax": "spec",
    "tiles_softmax": "config spec spec_softmax",
    "ops": "config errors spec spec_attention spec_merge spec_softmax tiles_attention tiles_decode"
    " tiles_merge tiles_softmax",
    "variant": "config errors ops spec",
    "catalog": "config ops spec spec_attention spec_merge spec_softmax tiles_decode variant",
    "launch": "",
    "context_attention": "config spec_attention",
    "layouts_triton": "",
    "context_triton": "config context_attention launch layouts_triton spec_attention variant",
    "context_gluon": "config context_attention launch spec_attention variant",
    "context_decode": "config context_attention launch spec_attention tiles_decode variant",
    "context_merge": "config context_attention launch spec_merge variant",
    "context_softmax": "config context_attention launch spec_softmax tiles_softmax variant",
    "context": "context_attention context_decode context_gluon context_merge context_softmax"
    " context_triton variant",
    "render": "context variant",
    "store": "errors render variant",
    "bounds": "",
    "interpret": "bounds errors",
    "buckets": "",
    "winners_file": "buckets",
    "machine": "config",
    "winners": "buckets config machine render winners_file",
    "device": "errors interpret machine",
    "finder": "buckets device errors interpret ops spec store variant winners",
    "runtime": "buckets errors finder interpret spec_attention",
    "runtime_decode": "errors finder runtime spec_attention tiles_decode variant",
    "runtime_layouts": "errors finder runtime runtime_decode spec_attention",
    "runtime_merge": "errors finder spec_merge",
    "runtime_cascade": "errors runtime runtime_decode runtime_layouts runtime_merge",
    "adapters": "runtime_merge",
    "runtime_softmax": "config errors finder spec_softmax store variant",
    "compile": "config context errors interpret launch ops render variant",
    "cases_attention": "spec_attention variant",
    "cases_decode": "cases_attention spec_attention variant",
    "cases_layouts": "cases_attention spec_attention variant",
    "outputs": "",
    "verify_attention": "bounds cases_attention outputs reference variant",
    "verify_decode": "cases_attention cases_decode reference variant verify_attention",
    "verify_layouts": "cases_layouts reference variant verify_attention",
    "cases_merge": "spec_merge variant",
    "verify_merge": "bounds cases_merge outputs reference spec_merge variant",
    "cases_softmax": "spec_softmax variant",
    "verify_softmax": "bounds cases_softmax outputs reference spec_softmax tiles_softmax variant"
    " verify_attention",
    "verify": "cases_attention cases_decode cases_layouts cases_merge cases_softmax finder"
    " reference store variant verify_attention verify_decode verify_layouts verify_merge"
    " verify_softmax",
    "timing": "",
    "bench_cell": "finder spec store timing variant",
    "bench_prefill": "bench_cell spec_attention timing",
    "bench_decode": "bench_cell spec_attention timing",
    "bench_softmax": "bench_cell finder spec_softmax store timing variant",
    "bench_merge": "bench_cell spec_merge timing",
    "bench": "bench_decode bench_merge bench_prefill bench_softmax",
    "tune_attention": "spec_attention verify_attention",
    "tune_decode": "spec_attention tune_attention verify_attention",
    "tune_layouts": "spec_attention tune_attention tune_decode verify_attention",
    "tune_merge": "spec_merge verify_attention",
    "tune_softmax": "spec_softmax verify_attention",
    "trials": "config tiles_attention tiles_decode tiles_merge tiles_softmax tune_attention"
    " tune_decode tune_layouts tune_merge tune_softmax",
    "lab": "compile config errors finder outputs store timing trials variant verify",
    "tune_jobs": "buckets config ops render trials variant winners",
    "tune": "compile config errors tune_jobs variant winners",
    "cli_tune": "catalog device errors lab ops spec store tune tune_jobs variant winners",
    "cli_specs": "config ops spec store variant",
    "roofline": "errors reference spec",
    "roofline_measure": "errors finder interpret reference roofline spec_attention timing",
    "roofline_plot": "errors reference roofline",
    "cli_roofline": "bench roofline roofline_measure roofline_plot timing",
    "doctor": "store",
}
BLOCK = (
    "import sys\n"
    "class Block:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.split('.')[0] in ('torch', 'triton', 'numpy'):\n"
    "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
    "sys.meta_path.insert(0, Block())\n"
)


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "attngen":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attngen."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("attngen.")}
    return found


@pytest.mark.parametrize("module", sorted(path.stem for path in GEN.glob("*.py")))
def test_arrows_point_one_way(module: str) -> None:
    if module in ("__init__", "cli"):
        return
    assert _imports(GEN / f"{module}.py") <= set(ARROWS[module].split())


def test_the_reference_and_generated_kernels_import_nothing_of_gen() -> None:
    for path in (ROOT / "reference").glob("*.py"):
        assert _imports(path) <= {"reference"}
    for name in store.names(store.generated()):
        assert not _imports(store.generated() / f"{name}.py")


def test_files_stay_short() -> None:
    for folder in ("gen", "reference", "templates", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".jinja"):
                assert len(path.read_text().splitlines()) <= 300, path


def _python(code: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)


def test_import_loads_neither_torch_nor_triton_nor_numpy() -> None:
    code = "import sys, attngen; print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    assert _python(code).stdout == "set()\n"


def test_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import attngen; print(time.perf_counter() - t)"
    assert min(float(_python(code).stdout) for _ in range(3)) < 0.1


def test_public_names_resolve() -> None:
    for name in attngen.__all__:
        assert getattr(attngen, name) is not None
    assert set(attngen.__all__) <= set(dir(attngen))
    with pytest.raises(AttributeError, match="no attribute 'flash'"):
        attngen.flash  # noqa: B018


def test_build_and_check_without_torch_triton_and_numpy(tmp_path: Path) -> None:
    build = f"['build', '--head-dim', '128', '--dtype', 'bf16', '--out', {str(tmp_path)!r}]"
    for words in (build, "['check']", "['--help']", "['doctor']", f"['check', {str(tmp_path)!r}]"):
        result = _python(BLOCK + f"from attngen.cli import main; main({words})")
        assert result.returncode == 0, (words, result.stderr)
    assert len(store.names(tmp_path)) == 2


@pytest.mark.parametrize("package", ["torch", "triton"])
@pytest.mark.parametrize("command", ["verify", "compile"])
def test_a_missing_package_is_one_line(package: str, command: str) -> None:
    block = BLOCK.replace("('torch', 'triton', 'numpy')", f"({package!r},)")
    name = "attention_fwd_d128_bf16_m64_n32_w4_s4"
    flag = ", '--interpret'" if command == "verify" else ", '--target', 'sm_90'"
    result = _python(block + f"from attngen.cli import main; main([{command!r}, {name!r}{flag}])")
    assert result.returncode == 1
    assert f"{package} is not installed" in result.stderr and "pip install" in result.stderr
    assert "Traceback" not in result.stderr


def _cpu_seconds(words: list[str]) -> float:
    """Processor time of one command: what it takes on a machine that does nothing else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "attngen.cli", *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_building_is_quick(tmp_path: Path) -> None:
    one = ["build", "attention_fwd_d128_bf16_m128_n64_w8_s2", "--out"]
    assert min(_cpu_seconds([*one, str(tmp_path / str(i))]) for i in range(5)) < 0.5
    assert min(_cpu_seconds(["build", "--out", str(tmp_path / f"all{i}")]) for i in range(3)) < 3.0
