"""The repairs of Triton's interpreter: without each of them a pass there would mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from attngen.interpret import decode_bf16, interpreting, round_to_bf16  # noqa: E402

if not interpreting():
    pytest.skip("the interpreter is not in use: there is a GPU", allow_module_level=True)

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

N = tl.constexpr(16)


@triton.jit
def product(a_ptr, b_ptr, c_ptr):
    rows = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + rows, tl.dot(tl.load(a_ptr + rows), tl.load(b_ptr + rows)))


@triton.jit
def narrow(x_ptr, y_ptr):
    offsets = tl.arange(0, N)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(tl.bfloat16))


@triton.jit
def unguarded(x_ptr, y_ptr, limit):
    offsets = tl.arange(0, N)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < limit))


@triton.jit
def tiny(x_ptr, y_ptr, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.dot(x, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_products_are_those_of_the_values(device: str, dtype: torch.dtype) -> None:
    a, b = (torch.randn(16, 16, generator=torch.manual_seed(i)).to(dtype) for i in range(2))
    c = torch.full((16, 16), torch.nan)
    product[(1,)](a, b, c)
    assert torch.allclose(c, a.float() @ b.float(), atol=1e-5)


@given(st.floats(width=32))
def test_rounding_to_bf16_is_that_of_torch(x: float) -> None:
    bits = round_to_bf16(np.array([x], dtype=np.float32))
    expected = torch.tensor([x], dtype=torch.float32).bfloat16()
    assert torch.equal(
        torch.from_numpy(decode_bf16(bits)).nan_to_num(7.0), expected.float().nan_to_num(7.0)
    )


def test_casts_in_a_kernel_round_to_nearest_even(device: str) -> None:
    x = torch.linspace(-3, 3, 16) ** 3 * 1.003
    y = torch.full((16,), torch.nan, dtype=torch.bfloat16)
    narrow[(1,)](x, y)
    assert torch.equal(y, x.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_masked_load_without_other_leaves_garbage(device: str, dtype: torch.dtype) -> None:
    x, y = torch.ones(16, dtype=dtype), torch.zeros(16, dtype=dtype)
    unguarded[(1,)](x, y, 5)
    assert y[:5].eq(1).all() and y[5:].isnan().all()


def test_a_product_too_small_to_compile_is_refused(device: str) -> None:
    x = torch.ones(8, 8)
    with pytest.raises(Exception, match="does not compile"):
        tiny[(1,)](x, torch.empty(8, 8), 8)
