"""The committed plots show the committed results: their digests are those of the data of today."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("prefill-by-length", "prefill-by-shape", "prefill-speed-up", "roofline")


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plots", ROOT / "docs/plots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_plot_is_committed_and_nothing_else(plots: ModuleType) -> None:
    assert tuple(plots.PLOT) == NAMES
    assert sorted(path.stem for path in plots.PLOTS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_shows_the_results_of_today(plots: ModuleType, name: str) -> None:
    text = (plots.PLOTS / f"{name}.svg").read_text()
    (digest,) = re.findall(r"sha256 of the data: (\w{64})", text)
    assert digest == plots.digest(plots.PLOT[name][0]()), "mend with: python docs/plots.py"
    assert "<dc:date>" not in text


@pytest.mark.parametrize("name", NAMES)
def test_the_same_matplotlib_draws_the_same_bytes(
    plots: ModuleType, name: str, tmp_path: Path
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    committed = (plots.PLOTS / f"{name}.svg").read_text()
    plots.save(name, tmp_path / "again.svg")
    again = (tmp_path / "again.svg").read_text()
    plots.save(name, tmp_path / "twice.svg")
    assert (tmp_path / "twice.svg").read_text() == again
    if f"Matplotlib v{matplotlib.__version__}," in committed:
        assert again == committed, "mend with: python docs/plots.py"


def test_the_data_are_those_of_the_results(plots: ModuleType) -> None:
    path = ROOT / "docs/performance/nvidia-h200/prefill.json"
    record = next(r for r in json.loads(path.read_text())["records"] if r["causal"])
    cell = plots.by_cell()["causal attention"][plots._name(record["shape"])]
    assert cell["attngen, portable"] == record["value"]
    assert cell["cuDNN"] == record["peers"]["cudnn"]
    ratios = plots.over_best_peer()["causal attention"][plots._name(record["shape"])]
    assert ratios["attngen, portable"] == record["ratio"]
    lines = plots.by_length()["full attention"]
    assert [x for x, _ in lines["attngen, Hopper"]] == [256, 512, 2048, 16384]


def test_a_changed_result_is_another_digest(
    plots: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: plots.digest(parts[0]()) for name, parts in plots.PLOT.items()}
    for path in plots.RESULTS.glob("prefill*.json"):
        results = json.loads(path.read_text())
        for record in results["records"]:
            record["value"] += 1
            record["ratio"] += 0.01
        (tmp_path / path.name).write_text(json.dumps(results))
    monkeypatch.setattr(plots, "RESULTS", tmp_path)
    for name, (table, *_) in plots.PLOT.items():
        assert plots.digest(table()) != before[name]


def test_the_roofline_takes_what_was_measured_where_there_is_any(
    plots: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = {"batch": 1, "seqlen": 8192, "heads_q": 32, "heads_kv": 8, "head_dim": 128}
    record = {"shape": layer, "value": 1500.0, "bytes": 160 * 2**20, "peers": {"naive": 6500.0}}
    record["naive_bytes"] = 4 * 2**32 + 160 * 2**20
    (tmp_path / "roofline.json").write_text(json.dumps({"records": [record]}))
    monkeypatch.setattr(plots, "RESULTS", tmp_path)
    data = plots.roofline_h200()
    assert data["three_measured"] and data["one"][0][0] == 6553.6
    assert data["three"][0][1] == pytest.approx(169.2, abs=0.1)
