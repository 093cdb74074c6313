"""The merges: kernels of odd sizes held to the reference, and their run-time face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import NotGenerated, load, reference, runtime_merge, store  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.verify import verify  # noqa: E402

NAMES = [
    # Head dims that are odd, no power of two, one column, and the widest.
    "merge_state_d1_fp32_m32_w1_s1",
    "merge_state_d7_fp16_m16_w1_s1",
    "merge_state_d45_bf16_m8_w4_s1",
    "merge_state_d80_fp16_m4_w2_s1",
    "merge_state_d192_bf16_m8_w4_s1",
    "merge_state_d511_fp32_m2_w4_s1",
    "merge_state_d512_bf16_m4_w8_s1",
    "merge_states_d1_bf16_m32_w1_s1",
    "merge_states_d13_fp16_m16_w4_s1",
    "merge_states_d511_bf16_m2_w4_s1",
    # A tile of one row, and one that no warp fills.
    "merge_state_d64_bf16_m1_w1_s1",
    "merge_state_d4_fp16_m1_w4_s1",
    "merge_states_d64_fp32_m1_w4_s1",
    # Every output, either base, ragged lists.
    "merge_state_d40_fp32_out_fp16_m8_w4_s1",
    "merge_state_d40_fp32_out_bf16_base2_m8_w4_s1",
    "merge_state_d40_fp16_out_fp32_base2_m8_w4_s1",
    "merge_state_d40_fp16_out_fp8_m8_w4_s1",
    "merge_state_d40_fp32_out_fp8_base2_m8_w4_s1",
    "merge_states_d40_fp32_out_fp16_m8_w4_s1",
    "merge_states_d40_fp16_out_bf16_m8_w4_s1",
    "merge_states_d40_bf16_out_fp8_base2_m8_w4_s1",
    "merge_states_d40_fp32_ragged_m8_w4_s1",
    "merge_states_d40_fp16_out_fp32_base2_ragged_m8_w4_s1",
    "merge_states_d5_bf16_out_fp8_ragged_m1_w1_s1",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, tmp_path: Path, name: str) -> None:
    variant = parse(name)
    store.write(variant, tmp_path)
    report = verify(load(name, [tmp_path]), variant, device)
    assert not report.failed, str(report)


def states(
    device: str, n: int, tokens: int = 5, heads: int = 3, d: int = 64, dtype: Any = torch.float32
) -> tuple[Any, Any]:
    """o [n, tokens, heads, d] and lse [n, heads, tokens]."""
    generator = torch.Generator().manual_seed(0)
    o = torch.randn(n, tokens, heads, d, generator=generator)
    lse = 3 * torch.randn(n, heads, tokens, generator=generator)
    return o.to(device, dtype), lse.to(device)


def close(got: Any, expected: Any, tolerance: float = 1e-6) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(got.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def test_two_states_by_either_layout_and_into_out(device: str) -> None:
    o, lse = states(device, 2)
    expected = reference.merge_states(o.cpu().numpy(), lse.cpu().numpy())
    out, out_lse = torch.empty_like(o[0]), torch.empty_like(lse[0])
    got = attngen.merge_state(o[0], lse[0], o[1], lse[1], out=out, out_lse=out_lse)
    assert got[0] is out and got[1] is out_lse
    close(got[0], expected[0])
    close(got[1], expected[1])
    alone = attngen.merge_state(o[0], lse[0].mT, o[1], lse[1].mT, lse_layout="th", return_lse=False)
    assert torch.equal(alone, out)
    of_list = attngen.merge_states(o, lse)
    close(of_list[0], expected[0])
    close(of_list[1], expected[1])


def test_out_dtype_comes_from_out_the_scale_or_the_inputs(device: str) -> None:
    o, lse = states(device, 2, d=128, dtype=torch.bfloat16)
    call = (o[0], lse[0], o[1], lse[1])
    assert attngen.merge_state(*call)[0].dtype == torch.bfloat16
    wide = attngen.merge_state(*call, out_dtype=torch.float32)[0]
    assert wide.dtype == torch.float32
    out = torch.empty_like(wide)
    assert torch.equal(attngen.merge_state(*call, out=out)[0], wide)
    scaled = attngen.merge_state(*call, output_scale=0.05)[0]
    assert scaled.dtype == torch.float8_e4m3fn
    by_tensor = attngen.merge_state(*call, output_scale=torch.tensor(0.05, device=device))[0]
    assert torch.equal(scaled.float(), by_tensor.float())
    error = (scaled.float() * 0.05 - wide).abs()
    assert (error <= wide.abs() / 16 + 0.05 * 2.0**-10).all()
    unscaled = attngen.merge_state(*call, out_dtype=torch.float8_e4m3fn)[0]
    assert torch.equal(unscaled.float(), wide.clamp(-448, 448).to(torch.float8_e4m3fn).float())


def test_ragged_lists_of_states(device: str) -> None:
    o, lse = states(device, 9, tokens=1, d=128, dtype=torch.bfloat16)
    o, lse = o[:, 0], lse[:, :, 0]
    for dtype in (torch.int32, torch.int64):
        # Strided, and with a list that reaches beyond the states there are.
        indptr = torch.tensor([0, 0, 3, 3, 4, 99], dtype=dtype, device=device)
        strided = torch.stack([indptr, -indptr], 1)[:, 0]
        for lists in (indptr, strided):
            got_o, got_lse = attngen.merge_states(o, lse, indptr=lists, lse_layout="th")
            assert got_o.shape == (5, 3, 128) and got_lse.shape == (5, 3)
            for token, (first, last) in enumerate([(0, 0), (0, 3), (3, 3), (3, 4), (4, 9)]):
                one = attngen.merge_states(o[first:last, None], lse[first:last, None].mT)
                assert torch.equal(got_o[token], one[0][0])
                assert torch.equal(got_lse[token], one[1][:, 0])
    by_heads = attngen.merge_states(o, lse.mT, indptr=indptr)[1]
    assert torch.equal(by_heads, got_lse.mT)


def test_in_place_is_the_same_as_out_of_place(device: str) -> None:
    o, lse = states(device, 2, dtype=torch.float16)
    expected = attngen.merge_state(o[0], lse[0], o[1], lse[1])
    for i in range(2):
        a, b = (o[0].clone(), lse[0].clone()), (o[1].clone(), lse[1].clone())
        out, out_lse = (a, b)[i]
        got = attngen.merge_state(*a, *b, out=out, out_lse=out_lse)
        assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    a, b = (o[0].clone(), lse[0].clone()), (o[1].clone(), lse[1].clone())
    got = attngen.merge_state(*a, *b, out=a[0], out_lse=b[1])
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))


def test_views_that_interleave_do_not_overlap(device: str) -> None:
    o, lse = states(device, 2, dtype=torch.float16)
    expected = attngen.merge_state(o[0], lse[0], o[1], lse[1])[0]
    for dim in range(4):
        buffer = torch.stack([o[0], o[1], torch.full_like(o[0], torch.nan)], dim)
        if dim == 3:
            buffer = torch.cat([*o, torch.full_like(o[0], torch.nan)], -1).unflatten(-1, (3, 64))
            buffer = buffer.movedim(-2, 0)
            a, b, out = buffer
        else:
            a, b, out = buffer.unbind(dim)
        assert torch.equal(attngen.merge_state(a, lse[0], b, lse[1], out=out)[0], expected)


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_scale_comes_before_the_product(device: str, n: int) -> None:
    """Weights of several states add up to more than 1: a sum of such products would overflow."""
    largest = torch.finfo(torch.float32).max
    o = torch.full((n, 3, 2, 64), largest, device=device)
    lse = torch.linspace(0, 1, n * 6, device=device).reshape(n, 2, 3)
    got, _ = attngen.merge_states(o, lse)
    assert got.isfinite().all() and (got > 0.999 * largest).all()
    if n == 2:
        got, _ = attngen.merge_state(o[0], lse[0], o[1], lse[1])
        assert got.isfinite().all() and (got > 0.999 * largest).all()


def test_not_generated_names_the_command_that_builds_it(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from attngen.cli import main

    monkeypatch.setattr(store, "in_checkout", lambda: False)
    monkeypatch.setenv("ATTNGEN_KERNELS", str(tmp_path))
    o, lse = states(device, 2, d=37, dtype=torch.float16)
    calls = [
        lambda: attngen.merge_state(o[0], lse[0], o[1], lse[1]),
        lambda: attngen.merge_states(o, lse, out_dtype=torch.bfloat16),
        lambda: attngen.merge_states(
            o[:, 0], lse[:, :, 0], indptr=torch.tensor([0, 2], device=device), lse_layout="th"
        ),
    ]
    for call in calls:
        runtime_merge._kernel.cache_clear()
        with pytest.raises(NotGenerated) as error:
            call()
        words = str(error.value).split("attngen build ")[1].split()
        assert CliRunner().invoke(main, ["build", *words]).exit_code == 0
        call()
    runtime_merge._kernel.cache_clear()
