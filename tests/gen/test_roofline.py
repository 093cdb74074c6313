"""The roofline command: the design's numbers, other shapes, wrong values, and what it measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attngen import roofline, roofline_plot
from attngen.cli import main
from attngen.errors import InvalidSpec
from attngen.reference import cost


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, ["roofline", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_the_default_output_has_the_numbers_of_the_design() -> None:
    result = run()
    assert result.exit_code == 0
    for told in (
        "989.4 TFLOP/s, 3.35 TB/s, ridge 295 FLOP/byte",
        "S              4.00 GiB; 64.0 GiB at length 32768",
        "arithmetic     1.0995e12 FLOP",
        "traffic        16.156 GiB          0.156 GiB",
        "of it S and P  99 %                none",
        "intensity      63 FLOP/byte        6553.6 FLOP/byte",
        "the ridge      4.7x short of it    22x past it",
        "bound by       memory              arithmetic",
        "floor, a layer 5.18 ms             1.11 ms",
        "32 layers      165.7 ms            35.6 ms",
        "a factor of 103",
        "shares K and V with nobody has 4096 FLOP/byte",
        "2 heads_q / (bytes an element * heads_kv) = 4 FLOP/byte",
        "776 bytes for about 390 FLOP a token and head",
        "1.6 % at BLOCK_N 64",
    ):
        assert told in result.output, told


def test_the_same_as_data() -> None:
    told = json.loads(run("--json").output)
    assert told == json.loads(json.dumps(roofline.facts(roofline.ask())))
    assert told["three_kernels"]["bytes"] == 4 * 2**32 + 160 * 2**20
    assert told["three_kernels"]["bound_by"] == "memory"
    assert told["fused"]["bound_by"] == "arithmetic"
    largest = told["largest_seqlen_of_three_kernels"]
    layer, longer = (roofline.ask(seqlen=n).layer for n in (largest, largest + 1))
    assert cost.naive_memory(layer) <= 80e9 < cost.naive_memory(longer)


def test_memory_that_is_taken_makes_the_largest_length_smaller() -> None:
    taken = json.loads(run("--json", "--taken-gb", "16.06").output)
    weights = cost.LLAMA3_8B_WEIGHTS
    expected = cost.largest_naive_seqlen(cost.llama3_8b_layer(), cost.H100_SXM, weights)
    assert taken["largest_seqlen_of_three_kernels"] == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("gpu", cost.GPUS)
def test_every_gpu(gpu: str) -> None:
    told = json.loads(run("--gpu", gpu, "--json").output)
    rates = cost.GPUS[gpu]
    assert told["gpu"]["name"] == rates.name and told["gpu"]["source"]
    floor = 1e3 * told["flop"] / rates.peak_flops
    assert told["fused"]["layer_ms"] == pytest.approx(floor)
    assert told["three_kernels"]["layer_ms"] == pytest.approx(
        1e3 * told["three_kernels"]["bytes"] / rates.bandwidth
    )


def test_float32_has_four_bytes_and_its_own_rate() -> None:
    told = json.loads(run("--dtype", "fp32", "--json").output)
    assert told["gpu"]["tflops"] == pytest.approx(66.9)
    assert told["fused"]["bytes"] == 2 * roofline.ask().layer.fused_bytes
    assert told["decode_flop_per_byte"] == 2


def test_decode_is_bound_by_memory() -> None:
    result = run("--decode", "--batch", "4")
    assert "1 query, 8192 keys" in result.output and "length 8192," not in result.output
    told = json.loads(run("--decode", "--json").output)
    assert told["fused"]["bound_by"] == "memory"
    assert told["fused"]["flop_per_byte"] == pytest.approx(4, rel=1e-3)
    assert told["largest_seqlen_of_three_kernels"] is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seqlen", "0"], "--seqlen: got 0, allowed is 1 to 2147483647"),
        (["--batch", "-1"], "--batch: got -1, allowed is 1"),
        (["--layers", "0"], "--layers: got 0"),
        (["--head-dim", "0"], "--head-dim: got 0"),
        (["--heads-kv", "0"], "--heads-kv: got 0"),
        (["--heads-q", "30"], "--heads-q: got 30, allowed is a multiple of --heads-kv, 8"),
        (["--dtype", "fp64"], "--dtype: got 'fp64', allowed are fp16, bf16, fp32"),
        (["--gpu", "V100"], "--gpu: got 'V100', allowed are A100, H100, H200, B200, MI300X"),
        (["--taken-gb", "nan"], "--taken-gb: got nan"),
        (["--taken-gb", "-1"], "--taken-gb: got -1.0"),
        (["--seqlen", "x"], "'x' is not a valid integer"),
        (["--plot", "a.nothing"], "--plot: got a.nothing, allowed are the endings"),
        (["--plot", "no/such/folder/a.svg"], "--plot: got no/such/folder/a.svg"),
    ],
)
def test_wrong_values_are_named_and_exit_2(words: list[str], told: str) -> None:
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    result = run(*words)
    assert result.exit_code == 2
    assert told in result.output and "Traceback" not in result.output


def test_every_wrong_value_is_named_at_once() -> None:
    with pytest.raises(InvalidSpec, match=r"--seqlen: got 0.*--gpu: got 'X'"):
        roofline.ask(seqlen=0, gpu="X")


def test_the_largest_numbers_allowed() -> None:
    most = str(2**31 - 1)
    words = [f"--{name}={most}" for name in ("seqlen", "heads-q", "heads-kv", "batch", "layers")]
    assert run(*words, "--head-dim", most).exit_code == 0
    assert run(*words, "--head-dim", most, "--decode", "--json").exit_code == 0
    assert (
        run("--seqlen", "1", "--heads-q", "1", "--heads-kv", "1", "--head-dim", "1").exit_code == 0
    )


def test_the_points_of_the_plot() -> None:
    three, one = roofline_plot.floors(roofline.ask())
    ((intensity, speed),) = three.points
    assert f"{intensity:.0f}" == "63" and speed == pytest.approx(intensity * 3.35)
    ((intensity, speed),) = one.points
    assert intensity == 6553.6 and speed == pytest.approx(989.4)
    assert (three.label, one.label) == ("three kernels, floor", "one fused kernel, floor")


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_a_plot(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"roofline.{ending}"
    assert run("--plot", path).exit_code == 0
    assert path.stat().st_size > 5000


def test_a_missing_matplotlib_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.split(".")[0] == "matplotlib":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    result = run("--plot", "a.svg")
    assert result.exit_code == 1
    assert "pip install 'attngen[plot]'" in result.output and "Traceback" not in result.output
