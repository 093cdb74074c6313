"""The run-time face of row softmax: which kernel is called, and what is said where none can be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated, load, runtime_softmax, store  # noqa: E402
from attngen.catalog import SINGLE_COLUMNS  # noqa: E402
from attngen.spec_softmax import Softmax  # noqa: E402
from attngen.variant import parse  # noqa: E402

EVERYTHING = "softmax_c40_fp16_single_log_lse_mask_scaled_m4_w1_s1"


@pytest.fixture(autouse=True)
def fresh_lookups(device: str) -> None:
    runtime_softmax._kernel.cache_clear()
    runtime_softmax._topk_kernel.cache_clear()


@pytest.fixture
def everything(device: str, tmp_path: Path) -> Any:
    """A kernel with every feature."""
    store.write(parse(EVERYTHING), tmp_path)
    return load(EVERYTHING, [tmp_path])


def normal(*shape: int, dtype: Any = None, device: str = "cpu") -> Any:
    x = torch.randn(shape, generator=torch.manual_seed(0))
    return x.to(device, dtype or torch.float32)


@pytest.mark.parametrize("columns", [0, 1, 200, 300, 2000, 9000])
def test_the_run_time_face_takes_the_smallest_bucket(
    device: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    find = runtime_softmax.find

    def noted(spec: Softmax, device: Any) -> Any:
        taken.append(spec)
        return find(spec, device=device)

    monkeypatch.setattr(runtime_softmax, "find", noted)
    x = normal(3, columns, device=device)
    y = attngen.softmax(x)
    assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6)
    (spec,) = taken
    assert spec.algorithm == "single"
    assert spec.columns == min(c for c in SINGLE_COLUMNS if c >= columns)


@pytest.mark.parametrize(("rows", "algorithm"), [(2, "split"), (128, "online")])
def test_long_rows_are_split_where_there_are_few(
    device: str, rows: int, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def find(spec: Softmax, device: Any) -> Any:
        taken.append(spec.algorithm)
        raise NotGenerated("stop here")

    monkeypatch.setattr(runtime_softmax, "find", find)
    with pytest.raises(NotGenerated):
        attngen.softmax(normal(1, 1, device=device).expand(rows, 40000))
    assert taken == [algorithm]


def test_long_rows_by_every_algorithm(device: str) -> None:
    x = normal(2, 40000, device=device)
    for algorithm in (None, "online", "safe", "split"):
        y = attngen.softmax(x, algorithm=algorithm)
        assert torch.allclose(y, torch.softmax(x, -1), atol=1e-7)
    with pytest.raises(InvalidSpec, match="columns: got 65536, allowed is 1 to 32768 with single"):
        attngen.softmax(x, algorithm="single")


def test_log_lse_mask_scale_and_types(device: str) -> None:
    x = normal(4, 100, dtype=torch.bfloat16, device=device)
    y, lse = attngen.softmax(x, log=True, return_lse=True)
    wide = x.float()
    assert torch.allclose(y.float(), torch.log_softmax(wide, -1), atol=0.03)
    assert torch.allclose(lse, torch.logsumexp(wide, -1), atol=1e-5)
    mask = torch.arange(100, device=device) % 3 > 0
    masked = attngen.softmax(x, mask=mask)
    expected = torch.softmax(wide.masked_fill(~mask, -math.inf), -1)
    assert torch.allclose(masked.float(), expected, atol=1e-3) and not masked[:, ::3].any()
    out = torch.empty(4, 100, device=device)
    scaled = attngen.softmax(x, scale=3.0, temperature=2.0, algorithm="online", out=out)
    assert scaled is out
    assert torch.allclose(out, torch.softmax(wide * 1.5, -1), atol=1e-6)


def test_softmax_in_place(device: str) -> None:
    for rows, columns in ((70, 200), (2, 40000)):
        x = normal(rows, columns, device=device)
        expected = attngen.softmax(x)
        assert attngen.softmax(x, out=x) is x
        assert torch.equal(x, expected)


def test_topk_takes_the_smallest_k_that_is_enough(device: str) -> None:
    x = normal(2, 3, 500, device=device)
    values, indices, p = attngen.softmax_topk(x, 5)
    expected, at = torch.topk(x, 5)
    assert torch.equal(values, expected) and torch.equal(indices, at)
    assert torch.allclose(p, torch.softmax(x, -1).gather(-1, at), atol=1e-6)
    with pytest.raises(NotGenerated, match=r"--op softmax_topk --columns 512 --k 9 --dtype fp32"):
        attngen.softmax_topk(x, 9)


def test_what_is_not_built_names_the_command(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from attngen.cli import main

    x = normal(3, 100, device=device)
    with pytest.raises(NotGenerated) as error:
        attngen.softmax(x, log=True, return_lse=True)
    words = str(error.value).split("attngen build ")[1].split()
    assert words[:6] == ["--op", "softmax", "--columns", "128", "--dtype", "fp32"]
    monkeypatch.setenv(store.PATH_VARIABLE, str(tmp_path))
    assert CliRunner().invoke(main, ["build", *words, "--out", str(tmp_path)]).exit_code == 0
    runtime_softmax._kernel.cache_clear()
    y, _ = attngen.softmax(x, log=True, return_lse=True)
    assert torch.allclose(y, torch.log_softmax(x, -1), atol=1e-5)


def wrong_calls(x: Any) -> dict[str, tuple[dict[str, Any], type[Exception], str]]:
    """What is wrong: (arguments, the error, what it says)."""
    half = x.to(torch.float16)
    return {
        "no tensor": ({"x": [1.0]}, TypeError, "x: got list"),
        "a single number": ({"x": x[0, 0]}, ValueError, "x: got a single number"),
        "float64": ({"x": x.double()}, InvalidSpec, "dtype: got torch.float64"),
        "int32": ({"x": x.int()}, InvalidSpec, "dtype: got torch.int32"),
        "algorithm": ({"x": x, "algorithm": "naive"}, ValueError, "algorithm: got 'naive'"),
        "out of another shape": ({"x": x, "out": x[:1]}, ValueError, "out: got shape"),
        "out of rows that overlap": (
            {"x": x, "out": x[:1].expand(x.shape)},
            ValueError,
            r"out: got strides \(0, 1\)",
        ),
        "out on another device": ({"x": x, "out": x.to("meta")}, TypeError, "out: got device meta"),
        "no out": ({"x": x, "out": [0.0]}, TypeError, "out: got list"),
        "out dtype": ({"x": x, "out_dtype": torch.int8}, InvalidSpec, "out_dtype: got torch.int8"),
        "out of another dtype": (
            {"x": x, "out": half, "out_dtype": torch.float32},
            TypeError,
            "out: got torch.float16",
        ),
    }


@pytest.mark.parametrize("what", wrong_calls(torch.zeros(3, 7)))
def test_a_wrong_call_names_the_argument(device: str, what: str) -> None:
    arguments, error, told = wrong_calls(normal(3, 7, device=device))[what]
    with pytest.raises(error, match=told):
        attngen.softmax(**arguments)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"mask": torch.ones(8)}, TypeError, "mask: got torch.float32, allowed is torch.bool"),
        ({"mask": torch.ones(9).bool()}, ValueError, r"mask: got shape \(9,\)"),
        ({"scale": math.nan}, ValueError, "scale: got nan"),
        ({"scale": math.inf}, ValueError, "scale: got inf"),
        ({"temperature": 0.0}, ValueError, "temperature: got 0.0"),
        ({"temperature": -1.0}, ValueError, "temperature: got -1.0"),
        ({"temperature": math.inf}, ValueError, "temperature: got inf"),
    ],
)
def test_a_wrong_option_names_itself(
    device: str, everything: Any, options: dict[str, Any], error: type[Exception], told: str
) -> None:
    options = {"mask": torch.ones(8).bool()} | options
    mask = options.pop("mask").to(device)
    with pytest.raises(error, match=told):
        everything.softmax(normal(2, 8, dtype=torch.float16, device=device), mask=mask, **options)


def test_rows_beyond_a_single_bucket_are_refused(device: str, everything: Any) -> None:
    x = normal(2, 41, dtype=torch.float16, device=device)
    with pytest.raises(ValueError, match="x: got rows of 41, allowed are up to 40 columns"):
        everything.softmax(x, mask=x > 0)


@pytest.mark.parametrize(("k", "error"), [(-1, ValueError), (65, ValueError), (True, TypeError)])
def test_a_wrong_k_is_refused(device: str, k: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"k: got {k}"):
        attngen.softmax_topk(normal(2, 8, device=device), k)
