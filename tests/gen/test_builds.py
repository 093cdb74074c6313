"""Builds beside other builds, in odd processes and where nothing can be written."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from attngen import store
from attngen.catalog import catalog
from attngen.cli import main

NAME = "attention_fwd_d64_fp16_causal_m64_n64_w4_s2"
BUILD = (sys.executable, "-m", "attngen.cli", "build")

# The disk is slow, so that half a file stands there long enough to be seen.
SLOW_BUILD = """
import pathlib, time
def write_bytes(path, data):
    with path.open("wb") as file:
        for part in (data[:1000], data[1000:]):
            file.write(part)
            file.flush()
            time.sleep(0.02)
pathlib.Path.write_bytes = write_bytes
from attngen.cli import main
main()
"""
READER = """
import importlib.util, pathlib, sys
folder, done, seen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), {}
import torch, triton
print("ready", flush=True)
last = False
while not last:
    last = done.exists()
    for path in folder.glob("*.py"):
        found = path.read_bytes()
        if seen.setdefault(path.name, found) != found:
            sys.exit(f"{path.name} has {len(found)} bytes, and had {len(seen[path.name])}")
        if path.stem not in sys.modules:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            sys.modules[path.stem] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[path.stem])
            assert callable(sys.modules[path.stem].attention_fwd)
print(len(seen))
"""


def test_eight_builds_into_one_folder_while_a_ninth_imports(tmp_path: Path) -> None:
    """Whoever reads while others write finds no file or a whole one, and always the same."""
    pytest.importorskip("torch", reason="a kernel imports torch")
    pytest.importorskip("triton", reason="a kernel imports triton")
    folder, done = tmp_path / "kernels", tmp_path / "done"
    words = ["--head-dim", "64", "--head-dim", "128", "--dtype", "fp16", "--dtype", "bf16"]
    command = [sys.executable, "-c", SLOW_BUILD, "build", *words, "--out", str(folder)]
    read_all = [sys.executable, "-B", "-c", READER, folder, done]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(read_all, text=True, **pipes) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        builders = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(8)]
        codes = [builder.wait() for builder in builders]
        done.touch()
        read, told = reader.communicate()
    assert codes == [0] * 8
    assert (reader.returncode, read) == (0, "8\n"), told
    assert len(list(folder.iterdir())) == 8, "something was left behind"
    assert list(store.compare(folder)) == []


def test_the_same_bytes_whatever_the_process(tmp_path: Path) -> None:
    """Hash seed, working directory, locale, no home and the order of names change nothing."""
    committed = {f"{name}.py" for name in catalog()}
    expected = {name: (store.generated() / name).read_bytes() for name in committed}
    for seed in range(4):
        env = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": str(seed), "LANG": "C"}
        if seed % 2:
            # No Python that makes UTF-8 of the C locale all the same.
            env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        names = list(reversed(catalog())) if seed >= 2 else []
        place, out = tmp_path / f"cwd{seed}", tmp_path / str(seed)
        place.mkdir()
        command = [*BUILD, *names, "--out", str(out)]
        subprocess.run(command, env=env, cwd=place, check=True, capture_output=True)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == expected
        assert list(place.iterdir()) == []


def _refused(folder: Path, prepare: Callable[[], object], reason: str) -> None:
    """One clear line that names the folder, exit 2, and nothing left behind."""
    command = [*BUILD, NAME, "--out", str(folder)]
    result = subprocess.run(command, preexec_fn=prepare, capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    *usage, line = result.stderr.splitlines()
    assert line.startswith("Error:") and usage[0].startswith("Usage:") and len(usage) <= 3
    assert str(folder) in line and reason in line and "--out" in line
    assert list(folder.iterdir()) == []


def _obey_permissions() -> None:
    """Have root, too, be refused where a folder's mode says so: it loses CAP_DAC_OVERRIDE."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, see capabilities(7)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        _refused(tmp_path, _obey_permissions, "Permission denied")
    finally:
        tmp_path.chmod(0o700)


def test_a_disk_that_takes_half_a_file(tmp_path: Path) -> None:
    half = len(store.render(catalog()[next(iter(catalog()))])) // 2
    _refused(
        tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (half, half)), "File too large"
    )


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = CliRunner().invoke(main, ["build", NAME, "--out", str(tmp_path)])
    assert result.exit_code == 2 and "No space left on device" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    result = CliRunner().invoke(main, ["build", NAME, "--out", str(blocked / "kernels")])
    assert result.exit_code == 2
    assert str(blocked / "kernels") in result.output and "--out" in result.output
