"""What only a GPU shows of row softmax: graphs, equal bits, alignment, far rows, many of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen.ops import default_config  # noqa: E402
from attngen.spec_softmax import Softmax  # noqa: E402
from attngen.variant import Variant  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
SHAPES = [(300, 100), (7, 5000), (3, 32768), (2, 100_001), (200, 40_000)]


def normal(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(shape, device="cuda", dtype=dtype)


def near(x: Any) -> Any:
    return torch.softmax(x.double(), -1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_call_is_captured_in_a_graph_and_replayed(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    expected = attngen.softmax(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = attngen.softmax(x)
        values, indices, _ = attngen.softmax_topk(x, 5)
    for _ in range(2):
        y.fill_(math.nan)
        graph.replay()
        assert torch.equal(y, expected)
        assert torch.equal(x.gather(-1, indices), values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fifty_runs_give_the_same_bits(shape: tuple[int, int], dtype: Any) -> None:
    x = normal(*shape, dtype=dtype)
    first = (attngen.softmax(x), *attngen.softmax_topk(x, 8))
    for _ in range(50):
        again = (attngen.softmax(x), *attngen.softmax_topk(x, 8))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("algorithm", ["single", "online", "split"])
def test_a_row_does_not_depend_on_its_mates(algorithm: str) -> None:
    x = normal(33, 20_000)
    whole = attngen.softmax(x, algorithm=algorithm)
    assert torch.equal(attngen.softmax(x[5:6], algorithm=algorithm), whole[5:6])


@pytest.mark.parametrize("algorithm", ["single", "online", "split"])
def test_pointers_and_rows_off_alignment(algorithm: str) -> None:
    """Vectors of another width add in another order: the same numbers, not the same bits."""
    x = normal(9, 5000)
    expected = attngen.softmax(x, algorithm=algorithm)
    flat = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view_as(x).copy_(x)
    wide = torch.empty(9, 5001, device="cuda", dtype=x.dtype)[:, :5000].copy_(x)
    columns_first = torch.empty(5000, 9, device="cuda", dtype=x.dtype).T.copy_(x)
    for odd in (flat, wide, columns_first):
        y = attngen.softmax(odd, algorithm=algorithm)
        assert torch.allclose(y, expected, rtol=2.0**-7, atol=0)
    attngen.softmax(x, out=wide, algorithm=algorithm)
    assert torch.allclose(wide, expected, rtol=2.0**-7, atol=0)


def test_b42_70000_rows() -> None:
    for columns in (3, 1000):
        x = normal(70_000, columns, dtype=torch.float32)
        assert torch.allclose(attngen.softmax(x).double(), near(x), atol=1e-6)
    x = normal(70_000, 3, dtype=torch.float32)
    values, at, _ = attngen.softmax_topk(x, 3)
    assert torch.equal(values, x.sort(-1, descending=True)[0])
    assert torch.equal(x.gather(-1, at), values)


def test_b33_rows_further_apart_than_int32() -> None:
    stride = 2**25
    buffer = torch.empty(65 * stride + 64, device="cuda", dtype=torch.bfloat16)
    wide = buffer.as_strided((66, 64), (stride, 1))
    x = normal(66, 64)
    wide.copy_(x)
    assert torch.equal(attngen.softmax(wide), attngen.softmax(x))
    assert torch.equal(attngen.softmax(x, out=wide), attngen.softmax(x))


def test_topk_of_long_rows_is_that_of_torch() -> None:
    x = normal(16, 131_072, dtype=torch.float32)
    values, indices, p = attngen.softmax_topk(x, 8)
    expected, at = torch.topk(x, 8)
    assert torch.equal(values, expected) and torch.equal(indices, at)
    assert torch.allclose(p.double(), near(x).gather(-1, at), rtol=1e-5, atol=0)


def test_b50_lengths_do_not_compile_anew() -> None:
    """Multiples of 16, other multiples of 8, 8 itself, and all others."""
    spec = Softmax(columns=262144, dtype="bf16", online=True)
    module = attngen.load(Variant(spec, default_config(spec)).name)
    before = sum(len(caches[0]) for caches in module._KERNEL.device_caches.values())
    for columns in (*range(2, 65), *range(1000, 1065)):
        module.softmax(normal(2, columns))
    after = sum(len(caches[0]) for caches in module._KERNEL.device_caches.values())
    assert after - before <= 4
