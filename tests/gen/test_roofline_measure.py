"""What `attngen roofline --measure` does, with the GPU's clock replaced by made-up times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="the command measures with torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import bench, roofline, roofline_measure, roofline_plot  # noqa: E402
from attngen.cli import main  # noqa: E402
from attngen.errors import InvalidSpec  # noqa: E402

KERNEL = "attention_fwd_d128_bf16_m64_n32_w4_s4"
SMALL = {"seqlen": 33, "heads_q": 4, "heads_kv": 2, "head_dim": 32, "dtype": "fp32", "gpu": "H200"}


def fake_clock(monkeypatch: pytest.MonkeyPatch, free: float) -> dict[str, Any]:
    """Calls run once; three kernels take 4 microseconds a set of inputs and one takes 1."""
    seen: dict[str, Any] = {}

    def speeds(calls: dict[str, Any], flops: float, rounds: int) -> dict[str, list[float]]:
        seen.update(calls)
        for call in calls.values():
            call()
        return {name: [flops * 1e-6 / (4 if name == "naive" else 1)] * rounds for name in calls}

    monkeypatch.setattr(bench, "timed_speeds", speeds)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(roofline_measure, "ROTATED_BYTES", 1)
    return seen


def test_three_kernels_compute_attention() -> None:
    asked = roofline.ask(**SMALL, batch=2)
    sets = [roofline_measure._inputs(asked, "cpu") for _ in range(2)]
    o = roofline_measure._three_kernels(asked, sets)()
    q, k, v = (x.transpose(1, 2) for x in sets[-1])
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.allclose(o.reshape(expected.shape), expected, atol=1e-5)


def test_a_record_of_each_length(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device != "cpu":
        pytest.skip("the clock is made up")
    seen = fake_clock(monkeypatch, free=math.inf)
    found = list(roofline_measure.records(roofline.ask(**SMALL), [33, 70], 3, device))
    assert list(seen) == ["kernel", "naive"]
    assert [record["shape"]["seqlen"] for record in found] == [33, 70]
    for record in found:
        # Two sets of inputs share the microseconds.
        assert record["value"] == 0.5 and record["peers"] == {"naive": 2.0}
        assert record["ratio"] == 4.0 and record["variant"].startswith("attention_fwd_d32_fp32_m")


def test_what_does_not_fit_is_left_out_by_name(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device != "cpu":
        pytest.skip("the clock is made up")
    seen = fake_clock(monkeypatch, free=2**30)
    (found,) = roofline_measure.records(roofline.ask(**SMALL), [33], 3, device)
    assert list(seen) == ["kernel"]
    assert found["peers"] == {} and "ratio" not in found
    assert found["left_out"] == {"naive": "S and P do not fit in memory"}
    assert "three kernels: S and P do not fit" in roofline_measure.line(found)


def test_a_record_and_its_line() -> None:
    asked = roofline.ask(gpu="H200")
    times = {"kernel": [1500.0, 1600.0, 1400.0], "naive": [6000.0, 7000.0, 6500.0]}
    found = roofline_measure.record(asked, KERNEL, times)
    assert (found["value"], found["peers"]["naive"], found["best_peer"]) == (1500, 6500, "naive")
    assert found["metric"] == "us" and found["gpu"] == "NVIDIA H200 SXM"
    assert found["ratio"] == pytest.approx(4.375)
    assert found["floor"] == pytest.approx(1111.29) and found["naive_floor"] == 3614.09
    line = roofline_measure.line(found)
    for told in ("8192", "16.156 GiB", "6.500", "3.614", "0.156 GiB", "1.500", "1.111", "99.03 %"):
        assert told in line
    three, one = roofline_plot.measured(asked, [found])
    assert one.points == [(6553.6, pytest.approx(asked.layer.flops / 1.5e9))]
    assert three.points[0][1] == pytest.approx(asked.layer.flops / 6.5e9)


def test_the_command_prints_a_table_and_a_results_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def records(asked: Any, lengths: Any, rounds: int) -> Any:
        for length in lengths:
            times = {"kernel": [100.0 * length] * rounds}
            yield roofline_measure.record(asked.of_length(length), KERNEL, times, "no room")

    monkeypatch.setattr(roofline_measure, "records", records)
    monkeypatch.setattr(roofline_measure, "question", lambda shape: roofline.ask(**shape))
    monkeypatch.setattr(bench, "header", lambda command: {"device": "none", "command": command})
    table = CliRunner().invoke(main, ["roofline", "--measure"])
    assert table.exit_code == 0, table.output
    assert len(table.output.splitlines()) == 1 + len(roofline_measure.LENGTHS)
    words = ["roofline", "--measure", "--seqlen", "2048", "--json"]
    results = json.loads(CliRunner().invoke(main, words).stdout)
    assert results["device"] == "none"
    assert [record["shape"]["seqlen"] for record in results["records"]] == [2048]
    pytest.importorskip("matplotlib")
    plot = tmp_path / "measured.svg"
    assert CliRunner().invoke(main, ["roofline", "--measure", "--plot", str(plot)]).exit_code == 0
    assert plot.stat().st_size > 5000


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(main, ["roofline", "--measure"])
    assert result.exit_code == 1
    assert "--measure times kernels on a GPU, and there is none" in result.output


def test_the_gpu_at_hand_is_known_by_its_name() -> None:
    assert roofline_measure.gpu_named("NVIDIA H200") == "H200"
    with pytest.raises(
        InvalidSpec, match="--gpu: not given, and the peak rates of NVIDIA H200 NVL"
    ):
        roofline_measure.gpu_named("NVIDIA H200 NVL")


def test_only_prefill_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(roofline_measure.interpret, "interpreting", lambda: False)
    result = CliRunner().invoke(main, ["roofline", "--measure", "--decode"])
    assert result.exit_code == 2 and "--decode: got it with --measure" in result.output
