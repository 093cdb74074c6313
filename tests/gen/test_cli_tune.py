"""The tune command and the winners that build takes, as a person meets them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch", reason="tuning runs kernels")
pytest.importorskip("triton", reason="tuning runs kernels")

from attngen import device, lab, store, winners
from attngen.catalog import catalog
from attngen.cli import main
from attngen.compile import Resources
from attngen.machine import Machine
from attngen.trials import TRIALS
from attngen.variant import Variant

H200 = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")
ONE = ("--head-dim", "128", "--dtype", "bf16", "--causal")
SPEC = "attention_fwd_d128_bf16_causal"
BEST = f"{SPEC}_m128_n64_w8_s3"


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


class FakeLab:
    """A tile is as fast as its place among the candidates, but for BEST, which is fastest."""

    interrupt_after = 99

    def __init__(self, target: Any, folder: Path, rounds: int) -> None:
        self.timed = 0

    def prepare(self, variants: Iterable[Variant]) -> None:
        list(variants)

    def resources(self, variant: Variant) -> Resources:
        return Resources(variant.name, "sm_90", 1, 0, 1, 232_448)

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        if self.timed == self.interrupt_after:
            raise KeyboardInterrupt
        self.timed += 1
        return {v.name: 1.0 if v.name == BEST else 2.0 + i for i, v in enumerate(variants)}

    def expect(self, variants: Iterable[Variant]) -> None:
        pass

    def refuted(self, variant: Variant) -> str | None:
        return None

    def unrepeatable(self, variant: Variant, shape: Any) -> str | None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An H200 that is not there; the folder of the package's winners."""
    monkeypatch.setattr(device, "machine_to_tune", lambda: H200)
    monkeypatch.setattr(lab, "Lab", FakeLab)
    monkeypatch.setattr(FakeLab, "interrupt_after", 99)
    monkeypatch.setattr(winners, "FOLDER", tmp_path / "tuned")
    return tmp_path / "tuned"


def test_without_a_gpu_it_says_so_and_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.torch.cuda, "is_available", lambda: False)
    result = run("tune", *ONE)
    assert result.exit_code == 1
    assert "tune times kernels on a GPU, and there is none" in result.output
    assert "Traceback" not in result.output


def test_the_interpreter_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    result = run("tune", *ONE)
    assert result.exit_code == 1 and "TRITON_INTERPRET is set" in result.output


def test_tuning_one_spec_and_building_what_won(gpu: Path, tmp_path: Path) -> None:
    result = run("tune", *ONE)
    assert result.exit_code == 0, result.output
    assert "NVIDIA H200: 1 specs, 7 shapes to time of 7, perhaps 1 minutes" in result.output
    assert re.search(
        r"\[#{20}\] 7/7, .* gone, about 0 s left: .*: m128_n64_w8_s3 1.0 us", result.output
    )
    assert "the default m64_n32_w4_s4 2.0 us, 2.00 of it" in result.output
    assert result.output.endswith("attngen build --device nvidia-h200\n")
    known = winners.read(gpu / "nvidia-h200.json", H200)
    assert list(known.specs) == [SPEC] and known.to_build("attention_fwd", SPEC) == [BEST]
    again = run("tune", *ONE)
    assert again.exit_code == 0 and "0 shapes to time of 7" in again.output
    out = tmp_path / "out"
    assert run("build", *ONE, "--device", "nvidia-h200", "--out", out).exit_code == 0
    assert store.names(out) == [BEST, f"{SPEC}_m64_n32_w4_s4"]
    # For a target there is what won on the GPUs of that target, beside the Hopper kernel.
    for_target = tmp_path / "target"
    run("build", *ONE, "--target", "sm_90", "--out", for_target)
    assert store.names(for_target) == [f"{SPEC}_m128_n128_w4_s2_sm90", BEST]
    run("build", *ONE, "--target", "sm_80", "--out", tmp_path / "sm_80")
    assert store.names(tmp_path / "sm_80") == [f"{SPEC}_m64_n32_w4_s4"]
    # Who chooses a tile gets that one.
    chosen = tmp_path / "chosen"
    run("build", *ONE, "--block-m", 16, "--device", "nvidia-h200", "--out", chosen)
    assert store.names(chosen) == [f"{SPEC}_m16_n32_w4_s4"]


def test_a_file_of_ones_own(gpu: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    result = run("tune", *ONE, "--file", mine)
    assert result.output.endswith(f"attngen build --device {mine}\n")
    assert not gpu.exists()
    run("build", *ONE, "--device", mine, "--out", tmp_path / "out")
    assert BEST in store.names(tmp_path / "out")


def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(
    gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeLab, "interrupt_after", 3)
    result = run("tune", *ONE)
    assert result.exit_code == 1
    assert "4 shapes are left; what was timed is in" in result.output
    monkeypatch.setattr(FakeLab, "interrupt_after", 99)
    again = run("tune", *ONE)
    assert again.exit_code == 0 and "4 shapes to time of 7" in again.output


def test_a_budget_ends_without_an_error(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import itertools

    from attngen import tune

    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setitem(tune.tune.__kwdefaults__, "clock", lambda: next(ticks))
    result = run("tune", *ONE, "--budget", 60)
    assert result.exit_code == 0 and "shapes are left" in result.output


def test_a_file_of_no_use_is_put_aside(gpu: Path) -> None:
    gpu.mkdir()
    path = gpu / "nvidia-h200.json"
    path.write_text(winners.as_text(winners.Winners(Machine("NVIDIA H200", "9.0", 1, "3.6.0"))))
    result = run("tune", *ONE)
    assert result.exit_code == 0
    assert f"begun anew: {path}: shared_memory: got 1, this is 232448" in result.output
    assert '"shared_memory": 1,' in (gpu / "nvidia-h200.json.old").read_text()
    assert winners.read(path, H200).specs


def test_the_catalog_and_names(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLab, "interrupt_after", 0)
    specs = {variant.spec for variant in catalog().values() if variant.spec.op in TRIALS}
    shapes = sum(len(list(TRIALS[spec.op].shapes(spec))) for spec in specs)
    assert len(specs) > 36 and shapes > 252
    whole = run("tune")
    assert f"{len(specs)} specs, {shapes} shapes to time of {shapes}, perhaps" in whole.output
    named = run("tune", f"{SPEC}_m16_n32_w4_s4", BEST)
    assert "1 specs, 7 shapes" in named.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tune", *ONE, "--block-m", "64"), "--block-m is no option of tune"),
        (("tune", *ONE, "--budget", "0"), "--budget"),
        (("tune", *ONE, "--file", "/proc/none/x.json"), "cannot write to /proc/none/x.json"),
        (("build", *ONE, "--device", "nvidia-h100"), "--device: got nvidia-h100, tuned are none"),
        (("build", *ONE, "--device", "/none.json"), "--device: /none.json: it cannot be read"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    gpu: Path, tmp_path: Path, words: Sequence[str], told: str
) -> None:
    out = ("--out", tmp_path / "out") if words[0] == "build" else ()
    result = run(*words, *out)
    assert result.exit_code == 2 and told in result.output
    assert "Traceback" not in result.output and "gone" not in result.output


def test_outside_a_checkout_it_asks_for_a_file(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "in_checkout", lambda: False)
    result = run("tune", *ONE)
    assert result.exit_code == 2 and "--file is missing" in result.output
