"""What only a GPU shows of the merges: graphs, races, equal bits, and more than 2**31 elements."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

BF16 = torch.bfloat16


def states(n: int, tokens: int, heads: int, d: int = 128, dtype: Any = BF16) -> tuple[Any, Any]:
    """o [n, tokens, heads, d] and lse [n, heads, tokens], a tenth of them empty."""
    o = torch.randn(n, tokens, heads, d, device="cuda", dtype=dtype)
    lse = torch.randn(n, heads, tokens, device="cuda")
    lse[torch.rand_like(lse) < 0.1] = math.inf
    return o, lse


def test_a_merge_is_captured_in_a_graph_and_replayed() -> None:
    o, lse = states(2, 1000, 32)
    expected = attngen.merge_state(o[0], lse[0], o[1], lse[1])
    out, out_lse = (torch.full_like(x, math.nan) for x in expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attngen.merge_state(o[0], lse[0], o[1], lse[1], out=out, out_lse=out_lse)
        many = attngen.merge_states(o, lse)
    for _ in range(2):
        for x in (out, out_lse, *many):
            x.fill_(math.nan)
        graph.replay()
        assert torch.equal(out, expected[0]) and torch.equal(out_lse, expected[1])
        assert many[0].isfinite().all()


@pytest.mark.parametrize("i", [0, 1])
def test_b08_fifty_merges_in_place_give_the_same_bits(i: int) -> None:
    """Two warps share a row of 256 float32 columns, and read the same lse."""
    for d, dtype in ((128, BF16), (256, torch.float32)):
        o, lse = states(2, 4096, 32, d, dtype)
        expected = attngen.merge_state(o[0], lse[0], o[1], lse[1])
        for _ in range(50):
            a, b = o.clone(), lse.clone()
            attngen.merge_state(a[0], b[0], a[1], b[1], out=a[i], out_lse=b[i])
            assert torch.equal(a[i], expected[0]) and torch.equal(b[i], expected[1])


def test_a_state_that_is_alone_keeps_every_bit() -> None:
    """Negative zeros and subnormal numbers among them."""
    for dtype in (torch.float16, BF16, torch.float32):
        o, lse = states(2, 500, 8, dtype=dtype)
        o[0, :, :, ::3] = -0.0
        o[0, :, :, 1::3] = torch.finfo(dtype).smallest_normal / 4
        lse[0], lse[1] = 1.5, -math.inf
        o[1] = math.nan
        for got in (
            attngen.merge_state(o[0], lse[0], o[1], lse[1]),
            attngen.merge_state(o[1], lse[1], o[0], lse[0]),
            attngen.merge_states(o, lse),
        ):
            bits = torch.int32 if dtype == torch.float32 else torch.int16
            assert torch.equal(got[0].view(bits), o[0].view(bits))
            assert torch.equal(got[1], lse[0])


def test_nan_survives_saturation() -> None:
    o, lse = states(2, 50, 8)
    lse[0, :, :3] = math.nan
    o[0] *= 1e5
    got, got_lse = attngen.merge_state(
        o[0], lse[0].nan_to_num(0.0, 0.0), o[1], lse[1], output_scale=0.5
    )
    assert got.float().isfinite().all() and got.float().abs().max() == 448
    got, got_lse = attngen.merge_state(o[0], lse[0], o[1], lse[1], output_scale=0.5)
    assert got[:3].float().isnan().all() and got_lse[:, :3].isnan().all()


def test_b33_more_elements_than_int32() -> None:
    tokens = 2**31 // (32 * 128) + 3
    o_a = torch.zeros(tokens, 32, 128, device="cuda", dtype=BF16)
    o_b = torch.full_like(o_a, 2.0)
    o_b[-1] = 4.0
    lse = torch.zeros(32, tokens, device="cuda")
    out, out_lse = attngen.merge_state(o_a, lse, o_b, lse, out=o_a)
    assert out[:-1].eq(1.0).all() and out[-1].eq(2.0).all()
    assert torch.allclose(out_lse, torch.tensor(math.log(2), device="cuda"))


def test_b42_a_merge_of_70000_tokens() -> None:
    o, lse = states(3, 70000, 4)
    lse.nan_to_num_(posinf=0.0)
    expected = (lse.softmax(0).mT[..., None].double() * o.double()).sum(0)
    got, got_lse = attngen.merge_states(o, lse)
    assert torch.allclose(got.double(), expected, rtol=2**-8, atol=1e-5)
    assert torch.allclose(got_lse, lse.logsumexp(0), atol=1e-5)
