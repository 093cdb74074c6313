"""What only a GPU shows: capture in graphs, equal bits, alignment, huge strides and grids."""

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


def normal(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(shape, device="cuda", dtype=dtype)


def test_a_call_is_captured_in_a_graph_and_replayed() -> None:
    q, k, v = normal(2, 300, 8, 128), normal(2, 300, 2, 128), normal(2, 300, 2, 128)
    expected = attngen.attention(q, k, v, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attngen.attention(q, k, v, causal=True, return_lse=True)
    for _ in range(2):
        o.fill_(math.nan)
        lse.fill_(math.nan)
        graph.replay()
        assert torch.equal(o, expected) and lse.isfinite().all()


@pytest.mark.parametrize("layout", ["varlen", "paged"])
def test_a_captured_graph_follows_the_lengths_on_the_device(layout: str) -> None:
    q, k, v = normal(300, 8, 128), normal(304, 2, 128), normal(304, 2, 128)
    cu = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
    table = torch.arange(38, dtype=torch.int32, device="cuda").view(2, 19)
    # At first the second sequence claims 200 keys of the 152 that its pages hold: it has those.
    seqlens = cu.diff()

    def call() -> Any:
        if layout == "varlen":
            return attngen.attention_varlen(q, k, v, cu, cu, 300, 300, causal=True)
        cache = (x.view(38, 8, 2, 128) for x in (k, v))
        return attngen.attention_paged(q, *cache, table, seqlens, cu_seqlens_q=cu, causal=True)

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    for middle in (100, 37, 0, 149):
        cu[1], cu[2] = middle, middle + 151
        seqlens.copy_(cu.diff())
        o.fill_(math.nan)
        graph.replay()
        assert torch.equal(o, call())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_fifty_runs_give_the_same_bits(dtype: Any) -> None:
    q, k, v = (normal(2, 777, 4, 64, dtype=dtype) for _ in range(3))
    first = attngen.attention(q, k, v, causal=True, return_lse=True)
    for _ in range(50):
        again = attngen.attention(q, k, v, causal=True, return_lse=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_b22_float32_is_not_tf32() -> None:
    one = 1 + 2.0**-12
    q = torch.full((1, 1, 1, 64), one, device="cuda")
    k = torch.full((1, 2, 1, 64), 1024.0, device="cuda")
    k[:, 0] *= one
    v = (
        torch.tensor([1.0, 0.0], device="cuda")[None, :, None, None]
        .expand(1, 2, 1, 64)
        .contiguous()
    )
    o, lse = attngen.attention(q, k, v, return_lse=True)
    assert torch.allclose(o, torch.full_like(o, 0.88085), atol=5e-4)
    assert lse.item() == pytest.approx(8196.127, abs=0.01)


def test_b33_rows_further_apart_than_int32() -> None:
    stride = 2**25
    buffer = torch.empty(65 * stride + 64, device="cuda", dtype=torch.float16)
    wide = buffer.as_strided((1, 66, 1, 64), (0, stride, 64, 1))
    narrow = torch.zeros(1, 66, 1, 64, device="cuda", dtype=torch.float16)
    wide.copy_(torch.arange(66, device="cuda")[None, :, None, None].expand(1, 66, 1, 64))
    assert attngen.attention(narrow, narrow, wide).eq(32.5).all()
    k = wide.clone()
    wide.zero_()
    assert attngen.attention(wide, narrow, k).eq(32.5).all()
    assert attngen.attention(narrow, wide, k).eq(32.5).all()
    assert attngen.attention(narrow, narrow, k, out=wide).eq(32.5).all()


def test_b35_pointers_and_rows_off_alignment() -> None:
    q, k, v = (normal(1, 100, 2, 64, dtype=torch.float16) for _ in range(3))
    # An sm90 kernel, which takes these but not the others, has bits of its own.
    expected, _ = attngen.load("attention_fwd_d64_fp16_m64_n64_w4_s3").attention_fwd(q, k, v)
    for i in range(3):
        arguments = [q, k, v]
        x = arguments[i]
        flat = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)
        arguments[i] = flat[1:].view_as(x).copy_(x)
        assert torch.equal(attngen.attention(*arguments), expected)
    odd = [torch.empty(1, 100, 2, 65, device="cuda", dtype=x.dtype)[..., :64] for x in (q, k, v)]
    for view, x in zip(odd, (q, k, v), strict=True):
        view.copy_(x)
    assert torch.equal(attngen.attention(*odd), expected)


def test_b42_more_heads_than_a_grid_axis() -> None:
    v = normal(8193, 1, 8, 32)
    assert torch.equal(attngen.attention(torch.zeros_like(v), torch.zeros_like(v), v), v)


# torch._inductor of 2.11 uses torch.jit, which torch itself calls deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dynamic", [False, True])
def test_b46_torch_compile_without_a_break(dynamic: bool) -> None:
    q, k, v = (normal(1, 128, 4, 64) for _ in range(3))
    kernel = attngen.load("attention_fwd_d64_bf16_m64_n64_w4_s3")

    def call(q: Any, k: Any, v: Any) -> Any:
        return kernel.attention_fwd(q, k, v)[0]

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(q, k, v), call(q, k, v))


def test_b50_lengths_do_not_compile_anew() -> None:
    module = attngen.load("attention_fwd_d32_bf16_causal_m64_n64_w4_s2")
    kernel = getattr(module, module.__name__.rsplit(".", 1)[1])
    for seqlen in (*range(1, 65), *range(1000, 1065)):
        x = normal(1, seqlen, 2, 32)
        module.attention_fwd(x, x, x)
    compiled = sum(len(caches[0]) for caches in kernel.device_caches.values())
    assert compiled <= 3


def _hopper() -> bool:
    return bool(torch.cuda.get_device_capability() == (9, 0))


def test_the_hopper_kernel_is_found_where_the_copy_engine_takes_the_tensors() -> None:
    if not _hopper():
        pytest.skip("the GPU is no Hopper")
    q, k, v = (normal(1, 100, 2, 64) for _ in range(3))
    kernel = attngen.load("attention_fwd_d64_bf16_causal_m192_n128_w4_s2_sm90")
    expected, _ = kernel.attention_fwd(q, k, v)
    assert torch.equal(attngen.attention(q, k, v, causal=True), expected)
    odd = normal(1, 100, 2, 65)[..., :64]
    for i, name in enumerate("qkv"):
        arguments = [q, k, v]
        arguments[i] = odd
        with pytest.raises(ValueError, match=f"{name}: got strides"):
            kernel.attention_fwd(*arguments)
        assert attngen.attention(*arguments, causal=True).isfinite().all()
    with pytest.raises(ValueError, match="out: got strides"):
        kernel.attention_fwd(q, k, v, out=odd)
    shifted = normal(q.numel() + 1)[1:].view_as(q)
    with pytest.raises(ValueError, match="q: got an address"):
        kernel.attention_fwd(shifted, k, v)
    with pytest.raises(TypeError, match="causal_offset: got Tensor"):
        kernel.attention_fwd(q, k, v, causal_offset=torch.zeros(1, device="cuda").int())


def test_two_graphs_of_the_hopper_kernel_at_once() -> None:
    """Each captured launch has a tile counter of its own."""
    if not _hopper():
        pytest.skip("the GPU is no Hopper")
    inputs = [tuple(normal(2, 2048, 8, 128) for _ in range(3)) for _ in range(2)]
    expected = [attngen.attention(*x, causal=True) for x in inputs]
    streams, graphs, found = [torch.cuda.Stream() for _ in range(2)], [], []
    for x in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=streams[0]):
            found.append(attngen.attention(*x, causal=True))
        graphs.append(graph)
    for _ in range(40):
        for o, graph, stream in zip(found, graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                o.fill_(math.nan)
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
