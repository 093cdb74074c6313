"""Public bug reports of row softmax, as small inputs with their right values."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_inputs import FP32, close
from torch._subclasses.fake_tensor import FakeTensorMode

import attngen
from attngen import finder
from attngen.spec_softmax import Softmax


@pytest.fixture(scope="module", autouse=True)
def ready(device: str) -> str:
    return device


def numbers(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.manual_seed(0)).to(device)


@pytest.mark.parametrize("algorithm", ["single", "online", "safe", "split"])
@pytest.mark.parametrize("value", [-3.4028234663852886e38, 3.4028234663852886e38, -math.inf])
def test_b02_a_row_of_one_finite_number_is_uniform(
    device: str, algorithm: str, value: float
) -> None:
    x = torch.full((1, 4), value, dtype=FP32, device=device)
    close(attngen.softmax(x, algorithm=algorithm), 0.25 if math.isfinite(value) else 0.0, 1e-7)


def softmax_of_copy(x: torch.Tensor) -> np.ndarray:
    wide = x.double().cpu().contiguous().numpy()
    e = np.exp(wide - wide.max(axis=-1, keepdims=True))
    y: np.ndarray = e / e.sum(axis=-1, keepdims=True)
    return y


@pytest.mark.parametrize("algorithm", ["single", "online", "safe", "split"])
def test_b36_rows_with_strides_of_their_own(device: str, algorithm: str) -> None:
    buffer = numbers(device, 4, 2, 8)
    five = numbers(device, 2, 3, 4, 5, 6)
    views = {
        "transposed to [2, 4, 8]": buffer.transpose(0, 1),
        "rows with stride 16": buffer[:, 0],
        "a 3x5 slice of an 8x8": numbers(device, 8, 8)[2:5, 1:6],
        "every second column": numbers(device, 3, 10)[:, ::2],
        "one row for all": numbers(device, 1, 8).expand(5, 8),
        "columns first": numbers(device, 8, 3).T,
        "five dimensions the other way round": five.permute(3, 1, 2, 0, 4),
    }
    for what, x in views.items():
        y = attngen.softmax(x, algorithm=algorithm)
        assert y.shape == x.shape, what
        close(y, softmax_of_copy(x), 1e-6)


@pytest.mark.parametrize("algorithm", ["single", "online", "safe", "split"])
def test_b36_nothing_outside_a_slice_is_touched(device: str, algorithm: str) -> None:
    x = numbers(device, 8, 8)[2:5, 1:6]
    buffer = torch.full((4, 3, 9), math.nan, dtype=FP32, device=device)
    out = buffer.transpose(0, 1)[:, 1, 2:7]
    attngen.softmax(x, out=out, algorithm=algorithm)
    close(out, softmax_of_copy(x), 1e-6)
    out.fill_(math.nan)
    assert buffer.isnan().all()


def test_b36_an_out_that_does_not_fold_is_refused(device: str) -> None:
    x = numbers(device, 2, 3, 4, 8)
    out = torch.empty((3, 4, 2, 8), device=device).permute(2, 0, 1, 3)
    attngen.softmax(x, out=out)
    close(out, softmax_of_copy(x), 1e-6)
    odd = torch.empty((4, 3, 2, 8), device=device).permute(2, 1, 0, 3)
    with pytest.raises(ValueError, match="out: got strides"):
        attngen.softmax(x, out=odd)


class Launches:
    """Stands for a kernel: remembers the grids that it is launched on and computes nothing."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self.grids.append(grid)
        return lambda *args, **kwargs: None


@pytest.mark.parametrize("columns", [3, 40000])
def test_b42_rows_beyond_65535(device: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    single = columns <= 128
    bucket = 128 if single else 262144
    spec = Softmax(columns=bucket, dtype="fp32", **{"single" if single else "online": True})
    stand_in = Launches()
    monkeypatch.setattr(finder.find(spec), "_KERNEL", stand_in)
    x = torch.empty((1, columns), device=device).expand(70000, columns)
    # Nothing is launched: rows may overlap.
    out = torch.empty(70000 + columns, device=device).as_strided(x.shape, (1, 1))
    attngen.softmax(x, out=out)
    ((axis,),) = stand_in.grids
    assert axis == (70000 / 8 if single else 70000)


@pytest.mark.parametrize("algorithm", ["single", "online", "safe", "split"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (0, 0), (2, 0, 5)])
def test_b43_rows_of_size_zero(device: str, algorithm: str, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=FP32, device=device)
    y = attngen.softmax(x, algorithm=algorithm)
    assert (y.shape, y.dtype) == (x.shape, FP32)
    values, indices, p = attngen.softmax_topk(x, 2)
    assert values.shape == indices.shape == p.shape == (*shape[:-1], 2)
    assert (indices == -1).all() and (p == 0).all()


def test_b46_shapes_of_fake_tensors(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher computes with shapes and strides alone, and reads no number of a tensor."""
    stand_in = Launches()
    spec = Softmax(columns=8192, dtype="bf16", single=True, log=True, lse=True)
    monkeypatch.setattr(finder.find(spec), "_KERNEL", stand_in)
    with FakeTensorMode():
        x = torch.empty((3, 5, 700), dtype=torch.bfloat16, device=device).transpose(0, 1)
        y, lse = attngen.softmax(x, log=True, return_lse=True)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert (lse.shape, lse.dtype) == ((5, 3), FP32)
    assert stand_in.grids == [(15,)]


def test_b50_rows_of_65536_columns_compile_in_30_seconds(tmp_path: Path) -> None:
    words = [
        "softmax_c65536_bf16_online_n4096_w8_s1@sm_90",
        "softmax_c65536_bf16_split_n8192_w8_s1@sm_90",
        "softmax_c32768_fp32_single_m1_w16_s1@sm_90",
    ]
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_rows.py"), *words],
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    rows = json.loads(result.stdout)
    for word in words:
        assert rows[word]["seconds"] < 30 and not rows[word]["failed"]
