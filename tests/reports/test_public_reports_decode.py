"""Public bug reports as small inputs with their right values: steps of decode, in splits.

Each test is named by its report's row in rows.py. On a machine with a GPU the same tests run there.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_inputs import BF16, FP16, FP32, Attend, close, column, rows, zeros

from attngen import load, store
from attngen.config import TARGETS
from attngen.ops import default_config, why_not
from attngen.reference import attention, error_budget
from attngen.spec_attention import AttentionDecode
from attngen.variant import Variant, parse

SPLITS: list[dict[str, int]] = [{"num_splits": n} for n in (1, 2, 3, 7, 16, 64)]
SPLITS += [{"split_size": n} for n in (16, 100)]
CHOSEN: list[dict[str, int]] = [{}, {"num_splits": 0}, {"split_size": 0}]


@pytest.mark.parametrize("splits", SPLITS + CHOSEN, ids=str)
def test_b13_the_window_of_a_step(
    attend: Attend, attend_decode: Attend, device: str, splits: dict[str, int]
) -> None:
    q, k, v = zeros(device, 1), zeros(device, 256), column(device, range(256), dtype=FP16)
    o, lse = attend_decode(q, k, v, causal=True, window_size=(127, 0), **splits)
    close(o, 191.5, 0.1)
    close(lse, 4.852030, 2e-6)
    prefill, _ = attend(zeros(device, 256), k, v, causal=True, window_size=(127, 0))
    torch.testing.assert_close(o[:, 0], prefill[:, -1])


@pytest.mark.parametrize("splits", SPLITS + CHOSEN, ids=str)
def test_b15_pages_outside_the_window_for_every_split(
    attend_paged: Attend, device: str, splits: dict[str, int]
) -> None:
    """Positions 0 to 5 hold NaN; pages 3, 0 and 1 follow each other."""
    cache = torch.full((2, 4, 4, 1, 16), torch.nan, dtype=FP16, device=device)
    table = torch.tensor([[3, 0, 1]], dtype=torch.int32, device=device)
    for position in range(6, 10):
        page = int(table[0, position // 4])
        cache[0, page, position % 4], cache[1, page, position % 4] = 0.0, position
    length = torch.tensor([10], dtype=torch.int32, device=device)
    q = torch.zeros((1, 1, 16), dtype=FP16, device=device)
    o, lse = attend_paged(q, *cache, table, length, causal=True, window_size=(3, 0), **splits)
    close(o, 7.5)
    close(lse, [[1.386294]], 1e-6)


@pytest.mark.parametrize(
    ("d", "dv"), [(72, 72), (80, 80), (96, 96), (112, 112), (160, 160), (192, 192), (64, 96)]
)
@pytest.mark.parametrize("splits", [{"num_splits": 1}, {"num_splits": 2}], ids=str)
def test_b23_only_the_last_column_counts_in_a_step(
    attend_decode: Attend, device: str, d: int, dv: int, splits: dict[str, int]
) -> None:
    """The two keys are in splits of their own, or in one."""
    k = torch.zeros((1, 20, 1, d), dtype=FP16, device=device)
    v = torch.zeros((1, 20, 1, dv), dtype=FP16, device=device)
    q = torch.zeros((1, 1, 1, d), dtype=FP16, device=device)
    k[..., 1:19, :, 0], q[..., 0] = -1000.0, 60.0
    q[..., -1], k[0, 0, 0, -1], v[0, 0, 0, -1] = 1.0, 2.0, 1.0
    o, lse = attend_decode(q, k, v, sm_scale=1.0, **splits)
    close(o[..., -1], 0.880797, 5e-4)
    assert not o[..., :-1].any()
    close(lse, 2.126928, 2e-6)


@pytest.mark.parametrize("dtype", [FP16, FP32])
@pytest.mark.parametrize("head_dim", [8, 16])
@pytest.mark.parametrize("length", [1, 2, 15])
def test_b26_one_query_of_tiny_dims(
    attend_decode: Attend, device: str, dtype: torch.dtype, head_dim: int, length: int
) -> None:
    v = column(device, range(length), head_dim, dtype)
    o, lse = attend_decode(
        zeros(device, 1, head_dim, dtype), zeros(device, length, head_dim, dtype), v
    )
    close(o, (length - 1) / 2)
    close(lse, math.log(length), 1e-6)


@pytest.mark.parametrize("junk", [math.nan, math.inf])
@pytest.mark.parametrize("splits", SPLITS, ids=str)
def test_b28_unused_rows_of_a_cache_without_pages(
    attend_decode: Attend, device: str, junk: float, splits: dict[str, int]
) -> None:
    k, v = zeros(device, 8), column(device, [1, 1, 1, 1, 6, 0, 0, 0])
    k[:, 5:], v[:, 5:] = junk, junk
    lengths = torch.tensor([5], dtype=torch.int32, device=device)
    o, lse = attend_decode(zeros(device, 1), k, v, seqlens_kv=lengths, **splits)
    close(o, 2.0, 1e-3)
    close(lse, 1.609438, 1e-6)


@pytest.mark.parametrize("length", [1, 16, 37, 1000])
def test_b38_the_same_for_every_number_of_splits(
    attend_decode: Attend, device: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the launcher allocates for its states is NaN to begin with."""
    new_empty = torch.Tensor.new_empty

    def nan_filled(self: torch.Tensor, *size: Any, **options: Any) -> torch.Tensor:
        return new_empty(self, *size, **options).fill_(torch.nan)

    monkeypatch.setattr(torch.Tensor, "new_empty", nan_filled)
    generator = torch.Generator().manual_seed(length)
    q, k, v = (
        torch.randn((1, n, h, 32), generator=generator).to(device, BF16)
        for n, h in ((1, 4), (length, 2), (length, 2))
    )
    exact = [x.double().cpu().numpy() for x in (q, k, v)]
    expected = attention(*exact)
    for splits in [*SPLITS, *CHOSEN, {"num_splits": 150}]:
        count = max(splits.get("num_splits", 0), 64)
        bounds = error_budget(*exact, operand_dtype="bf16", block_n=16, num_splits=count)
        state = attend_decode(q, k, v, **splits)
        for got, right, bound in zip(state, expected, bounds, strict=True):
            assert (abs(got.double().cpu().numpy() - right) <= bound).all()


@pytest.mark.parametrize("splits", [{"split_size": 256}, {"num_splits": 1}], ids=str)
def test_b40_a_row_has_the_same_bits_among_others(
    attend_decode: Attend, device: str, splits: dict[str, int]
) -> None:
    """Alone, in a batch of 32 (4 in the interpreter), and beside a mate of twice its keys."""
    mates = 4 if device == "cpu" else 32
    generator = torch.Generator().manual_seed(40)
    q, k, v = (
        torch.randn((mates, n, h, 128), generator=generator).to(device, BF16)
        for n, h in ((1, 8), (1000, 1), (1000, 1))
    )
    alone, lse = attend_decode(q[:1], k[:1], v[:1], **splits)
    among, lse_among = attend_decode(q, k, v, **splits)
    assert torch.equal(among[:1], alone) and torch.equal(lse_among[:1], lse)
    k, v = (torch.cat((x[:2], x[2:4]), 1) for x in (k, v))
    lengths = torch.tensor([1000, 2000], dtype=torch.int32, device=device)
    beside, _ = attend_decode(q[:2], k, v, seqlens_kv=lengths, **splits)
    assert torch.equal(beside[:1], alone)


@pytest.mark.parametrize(("batch", "tq", "tk"), [(0, 1, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)])
@pytest.mark.parametrize("splits", [*CHOSEN, {"num_splits": 3}, {"split_size": 16}], ids=str)
def test_b43_a_step_of_size_zero(
    attend_decode: Attend, device: str, batch: int, tq: int, tk: int, splits: dict[str, int]
) -> None:
    q = torch.ones((batch, tq, 2, 16), dtype=FP16, device=device)
    k = torch.ones((batch, tk, 1, 16), dtype=FP16, device=device)
    o, lse = attend_decode(q, k, k, **splits)
    assert o.shape == q.shape and o.dtype == FP16 and not o.any()
    assert lse.shape == (batch, 2, tq) and (lse == -math.inf).all()


def test_b43_sequences_without_keys(attend_decode: Attend, device: str) -> None:
    lengths = torch.zeros(3, dtype=torch.int32, device=device)
    k = torch.full((3, 4, 1, 16), torch.nan, dtype=FP16, device=device)
    for splits in [*CHOSEN, *SPLITS]:
        q = torch.ones((3, 1, 1, 16), dtype=FP16, device=device)
        o, lse = attend_decode(q, k, k, seqlens_kv=lengths, **splits)
        assert not o.any() and (lse == -math.inf).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("paged", [False, True])
def test_b47_decode_tiles_of_head_dim_256_fit(target: str, dtype: str, paged: bool) -> None:
    spec = AttentionDecode(head_dim=256, dtype=dtype, paged=paged)
    assert why_not(spec, default_config(spec), TARGETS[target]) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_splits": -1}, "num_splits: got -1, allowed is None or 0 and up"),
        ({"split_size": -1}, "split_size: got -1, allowed is None or 0 and up"),
        ({"sm_scale": math.nan}, "sm_scale: got nan"),
    ],
)
def test_b55_a_wrong_step_is_refused_by_name(
    attend_decode: Attend, device: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        attend_decode(zeros(device, 1), zeros(device, 3), column(device, range(3)), **change)


def test_b33_far_rows_in_a_step(device: str, tmp_path: Path) -> None:
    """Rows 2**25 elements apart, in splits: an offset of 32 bits would wrap."""
    if device != "cpu":
        pytest.skip("on a GPU far rows take their memory: tests/kernels/test_gpu.py")
    variant = parse("attention_decode_d16_fp16_m16_n16_w1_s1")
    store.write(variant, tmp_path)
    buffer = torch.empty(65 * 2**25 + 16, dtype=FP16)
    far = buffer.as_strided((1, 66, 1, 16), (0, 2**25, 0, 1))
    far[...] = torch.arange(66)[None, :, None, None]
    q = zeros(device, 1)
    for splits in ({"num_splits": 1}, {"num_splits": 3}, {"split_size": 20}):
        o, _ = load(variant.name, [tmp_path]).attention_decode(q, far * 0, far, **splits)
        close(o[0, :, 0], rows([32.5]), 2e-2)
        o, _ = load(variant.name, [tmp_path]).attention_decode(q, far, far, **splits)
        close(o[0, :, 0], rows([32.5]), 2e-2)


def test_b42_more_steps_than_an_axis_holds(device: str, tmp_path: Path) -> None:
    """Grids have one axis, for sequences, heads and splits alike."""
    variant = Variant(
        AttentionDecode(head_dim=16, dtype="fp16"),
        parse("attention_decode_d16_fp16_m16_n16_w1_s1").config,
    )
    store.write(variant, tmp_path)
    module: Any = load(variant.name, [tmp_path])
    grids = []

    class Launches:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return lambda *args, **kwargs: None

    module._KERNEL = module.merge_splits = Launches()
    q = torch.empty((70000, 1, 8, 16), dtype=FP16, device=device)
    k = torch.empty((1, 4, 8, 16), dtype=FP16, device=device).expand(70000, -1, -1, -1)
    module.attention_decode(q, k, k, split_size=2)
    assert grids == [(70000 * 8 * 2,), (70000 * 8,)]
