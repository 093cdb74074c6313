"""The repairs of Triton's interpreter: without each of them a pass there would mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from attngen.bounds import Extents, OutOfBounds  # noqa: E402
from attngen.interpret import decode_bf16, interpreting, round_to_bf16, round_to_fp8  # noqa: E402

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
def narrower(x_ptr, y_ptr):
    offsets = tl.arange(0, N)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float8e4nv))


@triton.jit
def unguarded(x_ptr, y_ptr, limit):
    offsets = tl.arange(0, N)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < limit))


@triton.jit
def scalar(x_ptr, y_ptr, limit, OTHER: tl.constexpr):
    tl.store(y_ptr, tl.load(x_ptr, mask=limit > 0, other=OTHER))


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


@given(st.floats(-464, 464, width=32))
def test_rounding_to_fp8_is_to_the_nearest_even(x: float) -> None:
    numbers = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double().numpy()
    bits = int(round_to_fp8(np.array([x], dtype=np.float32))[0])
    distance = np.abs(numbers - abs(x))
    nearest = np.flatnonzero(distance == distance.min())
    even = nearest[0] if len(nearest) == 1 or nearest[0] % 2 == 0 else nearest[1]
    assert bits == even | (0x80 if np.signbit(np.float32(x)) else 0)


@pytest.mark.parametrize("x", [464.1, -465.0, 1e30, np.inf, -np.inf, np.nan])
def test_what_fp8_has_no_number_for_is_nan(x: float) -> None:
    assert round_to_fp8(np.array([x], dtype=np.float32))[0] & 0x7F == 0x7F


def test_casts_to_fp8_in_a_kernel(device: str) -> None:
    x = torch.tensor([1.99, 124.5, 0.0019, -0.0, 448.0, -7.8, 0.06, torch.nan] * 2)
    y = torch.zeros(16, dtype=torch.float8_e4m3fn)
    narrower[(1,)](x, y)
    expected = x.to(torch.float8_e4m3fn).view(torch.uint8) & 0x7F
    assert torch.equal(y.view(torch.uint8) & 0x7F, expected)
    assert torch.equal(y.float()[:7].signbit(), x[:7].signbit())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_masked_load_without_other_leaves_garbage(device: str, dtype: torch.dtype) -> None:
    x, y = torch.ones(16, dtype=dtype), torch.zeros(16, dtype=dtype)
    unguarded[(1,)](x, y, 5)
    assert y[:5].eq(1).all() and y[5:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("other", [0, 3])
def test_a_masked_load_of_a_scalar_keeps_its_other(
    device: str, dtype: torch.dtype, other: int
) -> None:
    x, y = torch.ones(1, dtype=dtype), torch.full((1,), 9, dtype=dtype)
    scalar[(1,)](x, y, 0, other)
    assert y.item() == other
    scalar[(1,)](x, y, 1, other)
    assert y.item() == 1


def test_a_product_too_small_to_compile_is_refused(device: str) -> None:
    x = torch.ones(8, 8)
    with pytest.raises(Exception, match="does not compile"):
        tiny[(1,)](x, torch.empty(8, 8), 8)


@triton.jit
def shifted(x_ptr, y_ptr, limit, X_BY: tl.constexpr, Y_BY: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets + X_BY, mask=offsets < limit, other=0.0)
    tl.store(y_ptr + offsets + Y_BY, x, mask=offsets < limit)


@triton.jit
def counting(count_ptr, BY: tl.constexpr):
    tl.atomic_add(count_ptr + BY, 1)


@pytest.mark.parametrize(("x_by", "y_by"), [(0, 0), (4, 4), (-4, 0), (0, -4), (5, 0), (0, 5)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_address_outside_the_tensors_is_refused(
    device: str, dtype: torch.dtype, x_by: int, y_by: int
) -> None:
    """Views of 16 elements in the middle of longer tensors, of which 12 are touched."""
    x, y = torch.ones(48, dtype=dtype), torch.zeros(48, dtype=dtype)
    views = x[16:32], y[16:32]
    if {x_by, y_by} <= {0, 4}:
        shifted[(1,)](*views, 12, x_by, y_by)
        assert y.sum() == y[16 + y_by : 28 + y_by].sum() == 12
    else:
        with pytest.raises(Exception, match="of 12 addresses lie outside the tensor"):
            shifted[(1,)](*views, 12, x_by, y_by)
        assert y.eq(0).all()


@pytest.mark.parametrize("by", [0, 1, -1, -(2**40), 2**40])
def test_a_count_outside_the_tensors_is_refused(device: str, by: int) -> None:
    count = torch.zeros(1, dtype=torch.int32)
    if by == 0:
        counting[(1,)](count, by)
        assert count == 1
    else:
        with pytest.raises(Exception, match="atomic: 1 of 1 addresses lie outside"):
            counting[(1,)](count, by)


def test_addresses_are_held_to_the_longest_view() -> None:
    base = torch.zeros(64)
    extents = Extents.of((base, base[8:16], base[60:], torch.zeros(0), 3, None))
    first = base.data_ptr()
    pointers = np.arange(first, first + 256, 4, dtype=np.uint64)
    extents.hold("load", pointers, 4, np.True_)
    for wrong in (first - 1, first + 253, first + 256, 2**64 - 2, 0):
        with pytest.raises(OutOfBounds, match=r"load: [01] of 1 addresses"):
            extents.hold("load", np.array([wrong], dtype=np.uint64), 4, np.True_)


def test_one_access_stays_in_one_tensor() -> None:
    """Neighbours in memory do not lend each other their elements."""
    base = torch.zeros(32)
    extents = Extents.of((base[:16], base[16:]))
    first = base.data_ptr()
    halves = np.arange(first, first + 128, 4, dtype=np.uint64).reshape(2, 16)
    for half in halves:
        extents.hold("load", half, 4, np.True_)
    with pytest.raises(OutOfBounds, match="16 of 32 addresses lie outside the tensor"):
        extents.hold("load", halves, 4, np.True_)
    for mask in (np.array([[True], [False]]), np.array([[1], [0]])):
        extents.hold("load", halves, 4, mask)


@triton.jit
def by_descriptor(x_ptr, y_ptr, ROW: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [ROW + N, N], [N, 1], [N, N])
    y = tl.make_tensor_descriptor(y_ptr, [N, N], [N, 1], [N, N])
    y.store([0, 0], x.load([ROW, 0]))


@pytest.mark.parametrize("row", [0, 16, 24])
def test_descriptors_are_held_to_the_tensors_too(device: str, row: int) -> None:
    x, y = torch.ones(32, 16), torch.zeros(16, 16)
    if row <= 16:
        by_descriptor[(1,)](x, y, row)
        assert y.eq(1).all()
    else:
        with pytest.raises(Exception, match="128 of 256 addresses lie outside the tensor"):
            by_descriptor[(1,)](x, y, row)


@triton.jit
def copied(x_ptr, y_ptr, BY: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets + BY))


@pytest.mark.parametrize("by", [0, 1])
def test_reinterpreted_tensors_are_tensors(device: str, by: int) -> None:
    bits = torch.arange(16, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8)
    x, y = (triton.reinterpret(tensor, tl.float8e5) for tensor in bits)
    if by == 0:
        copied[(1,)](x, y, by)
        assert torch.equal(*bits)
    else:
        with pytest.raises(Exception, match="1 of 16 addresses lie outside the tensor"):
            copied[(1,)](x, y, by)
