"""Public bug reports as small inputs with their right values: layouts, sizes, launching."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_inputs import FP16, FP32, Attend, close, column, zeros
from torch._subclasses.fake_tensor import FakeTensorMode

import attngen
from attngen import finder, store, verify
from attngen.catalog import catalog
from attngen.interpret import interpreting
from attngen.reference.checks import compare
from attngen.render import render
from attngen.spec_attention import AttentionFwd
from attngen.variant import Variant, parse

B, T, H, D = 2, 4, 3, 16


def by_heads(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def by_rows(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def in_a_fused_buffer(x: torch.Tensor) -> torch.Tensor:
    """The middle third of a buffer [batch, seqlen, 3, heads, columns] that is NaN elsewhere."""
    b, t, h, d = x.shape
    buffer = torch.full((b, t, 3, h, d), math.nan, dtype=x.dtype, device=x.device)
    buffer[:, :, 1] = x
    return buffer[:, :, 1]


def in_wider_rows(x: torch.Tensor) -> torch.Tensor:
    """The first columns of rows that have 3 columns more, of NaN."""
    b, t, h, d = x.shape
    buffer = torch.full((b, t, h, d + 3), math.nan, dtype=x.dtype, device=x.device)
    buffer[..., :d] = x
    return buffer[..., :d]


LAYOUTS = [by_heads, by_rows, in_a_fused_buffer, in_wider_rows]


def numbered(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    """q = k = 0, v(b, h, t) = 100 b + 10 h + t, and o [batch, 1, heads, 1]."""
    b, t, h = (torch.arange(n, dtype=FP16, device=device) for n in (B, T, H))
    v = 100 * b[:, None, None, None] + 10 * h[:, None] + t[None, :, None, None]
    q, k = (torch.zeros((B, T, H, D), dtype=FP16, device=device) for _ in "qk")
    o = 100.0 * np.arange(B)[:, None, None, None] + 10.0 * np.arange(H)[:, None] + 1.5
    return q, k, v.repeat(1, 1, 1, D), o


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", ["q", "k", "v", "out", "qk", "kv", "qkv"])
def test_b32_strides_of_their_own(
    attend: Attend, device: str, which: str, layout: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    q, k, v, o = numbered(device)
    tensors = {"q": q, "k": k, "v": v, "out": torch.full_like(q, math.nan)}
    for name in ("out",) if which == "out" else which:
        tensors[name] = layout(tensors[name])
    got, _ = attend(**tensors)
    assert got is tensors["out"]
    close(got, o)


def test_b32_three_views_of_one_buffer(attend: Attend, device: str) -> None:
    *qkv, o = numbered(device)
    for dimension in (2, 3):
        buffer = torch.stack(qkv, dimension)
        got, _ = attend(*buffer.unbind(dimension))
        close(got, o)


def test_b32_an_output_inside_a_buffer(attend: Attend, device: str) -> None:
    q, k, v, o = numbered(device)
    buffer = torch.full((B, T + 2, H + 1, D + 3), math.nan, dtype=FP16, device=device)
    attend(q, k, v, out=buffer[:, 1 : T + 1, :H, :D])
    close(buffer[:, 1 : T + 1, :H, :D], o)
    buffer[:, 1 : T + 1, :H, :D] = math.nan
    assert buffer.isnan().all()


def test_b32_expanded_over_heads_and_sequences(attend: Attend, device: str) -> None:
    q, k, v, _ = numbered(device)
    one = (k[:, :, :1].expand(-1, -1, H, -1), v[:, :, :1].expand(-1, -1, H, -1))
    got, _ = attend(q, *one)
    close(got, 100.0 * np.arange(B)[:, None, None, None] + 1.5)
    got, _ = attend(q[:1].expand(B, -1, -1, -1), k[:1].expand(B, -1, -1, -1), v)
    close(got, numbered(device)[3])


@pytest.mark.parametrize("odd", [1, 7, 10**6])
def test_b32_odd_strides_of_dimensions_of_size_1(attend: Attend, device: str, odd: int) -> None:
    q, k = zeros(device, 1), zeros(device, 3)
    v = column(device, [1.0, 2.0, 6.0])
    q = q.as_strided(q.shape, (odd, odd, odd, 1))
    k, v = (x.as_strided(x.shape, (odd, D, odd, 1)) for x in (k, v))
    out = torch.empty_like(v)[:, :1].as_strided((1, 1, 1, D), (odd, odd, odd, 1))
    got, _ = attend(q, k, v, out=out)
    close(got, 3.0)


@pytest.mark.parametrize("which", ["q", "k", "v", "out"])
def test_b32_a_last_dimension_with_a_stride_is_refused(
    attend: Attend, device: str, which: str
) -> None:
    q, k, v, _ = numbered(device)
    tensors = {"q": q, "k": k, "v": v, "out": torch.empty_like(q)}
    tensors[which] = tensors[which].repeat_interleave(2, 3)[..., ::2]
    with pytest.raises(ValueError, match=f"{which}: got last-dimension stride 2, allowed is 1"):
        attend(**tensors)


@pytest.mark.skipif(not interpreting(), reason="reads where a wrong offset would crash the process")
@pytest.mark.parametrize(
    ("what", "causal"),
    [("keys", False), ("keys", True), ("queries", True), ("sequences", False), ("heads", False)],
)
def test_b33_offsets_of_more_than_32_bits(tmp_path: Path, what: str, causal: bool) -> None:
    variant = parse(f"attention_fwd_d16_fp16{'_causal' if causal else ''}_m16_n16_w1_s1")
    store.write(variant, tmp_path)
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("far_rows.py"), what, ["full", "causal"][causal]],
        env=os.environ | {store.PATH_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"ended with {result.returncode}: {result.stderr[-500:]}"
    assert json.loads(result.stdout) <= 0.02


class Launches:
    """Stands for a kernel: remembers the grids that it is launched on and computes nothing."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.grids.append(grid)
        return lambda *args, **kwargs: None


@pytest.fixture
def launches(attend: Attend, device: str, monkeypatch: pytest.MonkeyPatch) -> Launches:
    """The launches of the plain fp16 kernel of head dim 16, none of which happens."""
    attend(zeros(device, 1), zeros(device, 1), zeros(device, 1))
    module: Any = finder.find(AttentionFwd(head_dim=16, dtype="fp16"))
    stand_in = Launches()
    monkeypatch.setattr(module, "_KERNEL", stand_in)
    return stand_in


@pytest.mark.parametrize(("batch", "heads", "seqlen"), [(8193, 8, 1), (1, 70000, 1), (1, 1, 2**21)])
def test_b42_grids_beyond_65535(
    launches: Launches, device: str, batch: int, heads: int, seqlen: int
) -> None:
    q = torch.empty((1, 1, 1, 16), dtype=FP16, device=device).expand(batch, seqlen, heads, 16)
    attngen.attention(q, q[:, :1], q[:, :1])
    (grid,) = launches.grids
    assert all(axis <= 65535 for axis in grid[1:])
    assert math.prod(grid) >= batch * heads


@pytest.mark.parametrize("name", sorted(catalog()))
def test_b42_no_kernel_has_a_grid_of_two_axes(name: str) -> None:
    """A launch is `kernel[(programs,)](arguments)`."""
    grids = re.findall(r"\w\[\((.*)\)\]\(\n", render(catalog()[name]))
    assert grids and all(re.fullmatch(r"[^,]+(\(.*\))?,", grid) for grid in grids)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature", ["none", "window", "softcap", "alibi", "bias", "mask", "sinks"])
@pytest.mark.parametrize(("batch", "tq", "tk"), [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)])
def test_b43_inputs_of_size_zero(
    attend: Attend, device: str, batch: int, tq: int, tk: int, feature: str, causal: bool
) -> None:
    q = torch.ones((batch, tq, 2, 16), dtype=FP16, device=device)
    k, v = (torch.ones((batch, tk, 1, 16), dtype=FP16, device=device) for _ in "kv")
    sinks = torch.tensor([0.5, -math.inf], device=device)
    options: dict[str, dict[str, Any]] = {
        "none": {},
        "window": {"window_size": (2, 1)},
        "softcap": {"softcap": 1.0},
        "alibi": {"alibi_slopes": torch.ones(2, device=device)},
        "bias": {"bias": torch.ones((batch, 1, tq, tk), device=device)},
        "mask": {"mask": torch.ones((tq, tk), dtype=torch.bool, device=device)},
        "sinks": {"sinks": sinks},
    }
    o, lse = attend(q, k, v, causal=causal, **options[feature])
    assert (o.shape, o.dtype) == ((batch, tq, 2, 16), FP16)
    assert (lse.shape, lse.dtype) == ((batch, 2, tq), FP32)
    if tk == 0:
        close(o, 0.0, 0)
        empty = sinks.cpu()[:, None] if feature == "sinks" else -math.inf
        close(lse, np.asarray(empty), 1e-7)


def test_b44_tensors_on_different_devices(attend: Attend, device: str) -> None:
    q, k, v, _ = numbered(device)
    for name in ("k", "v", "out"):
        tensors = {"q": q, "k": k, "v": v, "out": torch.empty_like(q)}
        tensors[name] = tensors[name].to("meta")
        with pytest.raises(TypeError, match=f"{name}: got device meta, allowed is that of q"):
            attend(**tensors)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_b44_a_gpu_that_is_not_the_current_one(attend: Attend) -> None:
    q, k, v, expected = numbered("cuda:1")
    with torch.cuda.device(0):
        o, _ = attend(q, k, v)
        assert (o.device, torch.cuda.current_device()) == (q.device, 0)
    close(o, expected)


def test_b46_shapes_of_fake_tensors(launches: Launches, device: str) -> None:
    """The launcher computes with shapes and strides alone, and reads no number of a tensor."""
    with FakeTensorMode():
        q = torch.empty((2, 5, 4, 16), dtype=FP16, device=device)
        k = torch.empty((2, 7, 2, 16), dtype=FP16, device=device)
        o, lse = attngen.attention(q, k, k, return_lse=True, sm_scale=-1.0)
    assert (o.shape, o.stride(), o.dtype) == (q.shape, q.stride(), FP16)
    assert (lse.shape, lse.dtype) == ((2, 4, 5), FP32)
    assert len(launches.grids) == 1


def test_b50_no_length_is_compiled_anew() -> None:
    """Sizes are not specialised on their value, so that no length makes a kernel of its own."""
    dense = {"seqlen_q", "seqlen_kv", "num_heads", "heads_q"}
    packed = {"total_q", "num_sequences", "heads_q"}
    step = {"seqlen_q", "seqlen_kv", "num_splits", "split_size", "heads_kv"}
    sizes = {
        "attention_fwd": dense,
        "attention_decode": step,
        "attention_varlen": packed | {"total_kv"},
        "attention_paged": packed | {"page_size", "max_seqlen_kv"},
    }
    for variant in catalog().values():
        if variant.spec.op != "attention_fwd":
            continue
        text = render(variant)
        listed = text[text.index("do_not_specialize=[") : text.index(f"def {variant.name}(")]
        wanted = sizes[variant.spec.op] | {"group_size"}
        wanted |= {"causal_offset"} if variant.spec.causal else set()
        assert all(f'"{size}"' in listed for size in wanted), variant.name


@pytest.mark.skipif(not interpreting(), reason="about the interpreter")
@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
def test_b56_bf16_in_the_interpreter_is_bf16(tmp_path: Path) -> None:
    """Operands are decoded before products, so that a right kernel passes and a wrong one fails."""
    variant: Variant = parse("attention_fwd_d16_bf16_causal_m16_n16_w1_s1")
    store.write(variant, tmp_path)
    (report,) = verify.reports([variant], tmp_path, "cpu")
    assert not report.failed, str(report)
    assert report.verdicts["one past a tile"].o.ratio > 0.01


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_b56_nan_has_to_be_where_it_is_expected(value: float) -> None:
    bounds, lse = np.full((1, 2), 1e9), np.zeros(1)
    numbers = (2.0, value, -value)
    for got, expected in product(numbers, numbers):
        o, o_ref = np.array([[1.0, got]]), np.array([[1.0, expected]])
        verdict = compare(o, lse, o_ref, lse, bounds, lse, out_dtype="fp32")
        assert verdict.passed is np.array_equal(o, o_ref, equal_nan=True)
