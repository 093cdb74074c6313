"""The peers' merges by their own signatures, over their own published grids.

The interpreter takes a sample with few tokens; a GPU takes the grids whole.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import adapters  # noqa: E402

Build = Callable[..., None]

FP16, BF16, FP32, FP8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn
NAMES = {FP16: "fp16", BF16: "bf16", FP32: "fp32", FP8: "fp8"}

# tests/kernels/attention/test_merge_attn_states.py of vLLM: tokens, heads, head dims.
VLLM = (256, 512, 613, 1024, 1536, 4096), (4, 8, 16, 32, 48, 64), (32, 48, 64, 96, 128, 256)
# hopper/test_flash_attn.py of FlashAttention: splits, queries, head dims.
COMBINE = (
    (1, 2, 3, 5, 17, 32, 55, 97, 133),
    (1, 2, 3, 32, 64, 256, 113, 108, 640, 1024),
    (64, 96, 128, 192, 256, 512),
)


def signature(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_signatures_are_the_peers() -> None:
    assert signature(adapters.vllm_merge_attn_states) == [
        *("output", "prefix_output", "prefix_lse", "suffix_output", "suffix_lse", "output_lse"),
        *("prefill_tokens_with_context", "output_scale"),
    ]
    two = ["v_a", "s_a", "v_b", "s_b"]
    assert signature(adapters.sglang_merge_state) == [*two, "v_merged", "s_merged"]
    assert signature(adapters.flashinfer_merge_state) == two
    assert signature(adapters.flashinfer_merge_states) == ["v", "s"]
    in_place = ["v", "s", "v_other", "s_other", "mask"]
    assert signature(adapters.flashinfer_merge_state_in_place) == in_place
    assert signature(adapters.flash_attn_combine) == [
        *("out_partial", "lse_partial", "out", "out_dtype", "cu_seqlens", "seqused"),
        *("varlen_batch_idx", "return_lse"),
    ]


def merged(o: Any, lse: Any) -> tuple[Any, Any, Any]:
    """o, lse and the mean of |o|, of states o [n, tokens, heads, d], lse [n, tokens, heads]."""
    lse = lse.double()
    lse = torch.where(lse == math.inf, -math.inf, lse)
    total = torch.logsumexp(lse, 0)
    scale = torch.where(total == -math.inf, 0.0, (lse - total).exp())[..., None]
    o = torch.where((lse == -math.inf)[..., None], 0.0, o.double())
    return (scale * o).sum(0), total, (scale * o.abs()).sum(0)


def hold(got: Any, o: Any, lse: Any, output_scale: float = 1.0) -> None:
    """Compare a merged o and lse [tokens, heads] (or None) with the same in float64.

    Some tokens at a time, of 2**26 numbers or one: whole grids would not fit on a GPU in float64.
    """
    got_o, got_lse = got
    step = max(1, 2**26 // max(1, o[:, :1].numel()))
    for first in range(0, o.shape[1], step):
        tokens = slice(first, first + step)
        part = got_o[tokens], None if got_lse is None else got_lse[tokens]
        hold_tokens(part, o[:, tokens], lse[:, tokens], output_scale)


def hold_tokens(got: Any, o: Any, lse: Any, output_scale: float) -> None:
    got_o, got_lse = got
    expected, total, size = merged(o, lse)
    # Weights, their sum and the products: a dozen roundings of float32; and that of the output.
    bound = (20 + 2 * len(o)) * 2.0**-24 * size / output_scale
    expected = expected / output_scale
    if got_o.dtype == FP8:
        expected = expected.clamp(-448, 448)
    spacing = expected.abs() * torch.finfo(got_o.dtype).eps / 2
    smallest = torch.finfo(got_o.dtype).smallest_normal * torch.finfo(got_o.dtype).eps / 2
    error = (got_o.double() - expected).abs()
    assert (error <= bound * 1.01 + torch.clamp(spacing, min=smallest)).all()
    if got_lse is not None:
        same = got_lse.double() == total
        close = (got_lse.double() - total).abs() <= 2.0**-20 + 2.0**-23 * total.abs()
        assert (same | close).all()


def drawn(device: str, n: int, tokens: int, heads: int, d: int, dtype: Any) -> tuple[Any, Any]:
    """o [n, tokens, heads, d] and lse [n, tokens, heads], every tenth of which is +inf."""
    generator = torch.Generator(device).manual_seed(tokens + heads + d)
    shape = (n, tokens, heads)
    o = torch.randn(*shape, d, generator=generator, device=device).to(dtype)
    lse = torch.randn(shape, generator=generator, device=device)
    lse[torch.rand(shape, generator=generator, device=device) < 0.1] = math.inf
    return o, lse


def hold_vllm(device: str, tokens: int, heads: int, d: int, dtype: Any, fp8: bool) -> None:
    o, lse = drawn(device, 2, tokens, heads, d, dtype)
    context = tokens // 2 + 1
    prefix_lse, suffix_lse = (x.mT.contiguous() for x in lse)
    output = torch.empty_like(o[0], dtype=FP8 if fp8 else dtype)
    output_lse = torch.empty_like(prefix_lse)
    scale = torch.tensor([0.05], device=device) if fp8 else None
    call = (o[0], prefix_lse, o[1], suffix_lse, output_lse, context, scale)
    assert adapters.vllm_merge_attn_states(output, *call) is None
    lse[0, context:] = -math.inf
    hold((output, output_lse.mT), o, lse, scale.item() if fp8 else 1.0)
    # Without an lse, and without the cut.
    adapters.vllm_merge_attn_states(output, *call[:4], output_scale=scale)
    o, lse = drawn(device, 2, tokens, heads, d, dtype)
    hold((output, None), o, lse, scale.item() if fp8 else 1.0)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize("d", VLLM[2])
def test_vllm(device: str, build: Build, d: int, dtype: Any, fp8: bool) -> None:
    build("merge_state", head_dim=d, dtype=NAMES[dtype], out_fp8=fp8)
    hold_vllm(device, 13, 5, d, dtype, fp8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize("d", VLLM[2])
def test_the_whole_grid_of_vllm(device: str, build: Build, d: int, dtype: Any, fp8: bool) -> None:
    build("merge_state", head_dim=d, dtype=NAMES[dtype], out_fp8=fp8)
    for tokens, heads in itertools.product(*VLLM[:2]):
        hold_vllm(device, tokens, heads, d, dtype, fp8)


def hold_combine(
    device: str, n: int, tokens: int, d: int, dtype: Any, out_dtype: Any, sequences: int = 5
) -> None:
    """Sequences of 16 heads, lse a transposed view, as FlashAttention's test has it."""
    o, lse = drawn(device, n, sequences * tokens, 16, d, dtype)
    o, lse = o.unflatten(1, (sequences, tokens)), lse.unflatten(1, (sequences, tokens))
    lse = lse.mT.contiguous().mT
    out, out_lse = adapters.flash_attn_combine(o, lse, out_dtype=out_dtype)
    assert out.dtype == out_dtype and out.shape == o.shape[1:]
    assert out_lse.shape == lse.shape[1:] and out_lse.mT.is_contiguous()
    hold((out.flatten(0, 1), out_lse.flatten(0, 1)), o.flatten(1, 2), lse.flatten(1, 2))
    again, none = adapters.flash_attn_combine(o, lse, torch.empty_like(out), return_lse=False)
    assert none is None and torch.equal(again, out)


@pytest.mark.parametrize("out_dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize(
    ("n", "tokens", "d"),
    [(1, 3, 64), (2, 1, 96), (3, 2, 128), (17, 1, 192), (55, 1, 256), (133, 1, 512)],
)
def test_combine(device: str, build: Build, n: int, tokens: int, d: int, out_dtype: Any) -> None:
    features = {} if out_dtype == FP32 else {f"out_{NAMES[out_dtype]}": True}
    build("merge_states", head_dim=d, dtype="fp32", **features)
    # Two sequences in the interpreter, whose time goes by the states.
    hold_combine(device, n, tokens, d, FP32, out_dtype, sequences=2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("out_dtype", [FP16, BF16, FP32])
@pytest.mark.parametrize("d", COMBINE[2])
def test_the_whole_grid_of_combine(device: str, build: Build, d: int, out_dtype: Any) -> None:
    features = {} if out_dtype == FP32 else {f"out_{NAMES[out_dtype]}": True}
    build("merge_states", head_dim=d, dtype="fp32", **features)
    for n, tokens in itertools.product(*COMBINE[:2]):
        hold_combine(device, n, tokens, d, FP32, out_dtype)
        # The next point's sizes are others: what is kept of this one would not serve it.
        torch.cuda.empty_cache()


def test_combine_of_varlen_and_what_it_refuses(device: str, build: Build) -> None:
    build("merge_states", head_dim=64, dtype="fp16")
    o, lse = drawn(device, 3, 7, 2, 64, FP16)
    hold(adapters.flash_attn_combine(o, lse), o, lse)
    for name in ("cu_seqlens", "seqused", "varlen_batch_idx"):
        with pytest.raises(ValueError, match=f"{name}: got Tensor, allowed is None"):
            adapters.flash_attn_combine(o, lse, **{name: torch.zeros(2, device=device).int()})


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("d", [64, 80, 128])
def test_sglang(device: str, build: Build, d: int, dtype: Any) -> None:
    build("merge_state", head_dim=d, dtype=NAMES[dtype])
    o, lse = drawn(device, 2, 9, 66, d, dtype)
    v, s = adapters.sglang_merge_state(o[0], lse[0], o[1], lse[1])
    hold((v, s), o, lse)
    v_merged, s_merged = torch.empty_like(v), torch.empty_like(s)
    got = adapters.sglang_merge_state(o[0], lse[0].double(), o[1], lse[1], v_merged, s_merged)
    assert got[0] is v_merged and got[1] is s_merged
    assert torch.equal(v_merged, v) and torch.equal(s_merged, s)


@pytest.mark.parametrize("dtype", [FP16, BF16])
def test_flashinfer_is_base_2(device: str, build: Build, dtype: Any) -> None:
    for op in ("merge_state", "merge_states"):
        build(op, head_dim=128, dtype=NAMES[dtype], base2=True)
    o, lse = drawn(device, 3, 9, 5, 128, dtype)

    def hold2(got: Any, n: int) -> None:
        """A logarithm to base 2 times log(2) is the natural one."""
        hold((got[0], got[1].double() * math.log(2)), o[:n], lse[:n].double() * math.log(2))

    hold2(adapters.flashinfer_merge_state(o[0], lse[0], o[1], lse[1]), 2)
    hold2(adapters.flashinfer_merge_states(o.transpose(0, 1), lse.transpose(0, 1)), 3)
    by_token = o.transpose(0, 1).contiguous(), lse.transpose(0, 1).half().contiguous()
    v, s = adapters.flashinfer_merge_states(*by_token)
    assert s.dtype == FP32 and v.shape == (9, 5, 128)
    v, s = o[0].clone(), lse[0].clone()
    assert adapters.flashinfer_merge_state_in_place(v, s, o[1], lse[1]) is None
    hold2((v, s), 2)
    mask = torch.arange(9, device=device) % 2 == 0
    v, s = o[0].clone(), lse[0].clone()
    adapters.flashinfer_merge_state_in_place(v, s, o[1], lse[1], mask)
    lse[1, ~mask] = math.inf
    hold2((v, s), 2)
    kept = ~mask[:, None] & lse[0].isfinite()
    assert torch.equal(v[kept], o[0][kept]) and torch.equal(s[kept], lse[0][kept])


def test_wrong_calls_of_the_adapters(device: str, build: Build) -> None:
    for base2 in (False, True):
        build("merge_state", head_dim=128, dtype="fp16", base2=base2)
    o, lse = drawn(device, 2, 4, 3, 128, FP16)
    mask = torch.ones(4, device=device).bool()
    with pytest.raises(TypeError, match=r"mask: got torch.int32, allowed is torch.bool"):
        adapters.flashinfer_merge_state_in_place(o[0], lse[0], o[1], lse[1], mask.int())
    with pytest.raises(ValueError, match=r"mask: got shape \(3,\), allowed is \(4,\)"):
        adapters.flashinfer_merge_state_in_place(o[0], lse[0], o[1], lse[1], mask[:3])
    with pytest.raises(ValueError, match="v, s: got shapes"):
        adapters.flashinfer_merge_states(o[0], lse[0])
    with pytest.raises(ValueError, match=r"lse_a: got shape .*it fits 'th'"):
        adapters.vllm_merge_attn_states(torch.empty_like(o[0]), o[0], lse[0], o[1], lse[1])
