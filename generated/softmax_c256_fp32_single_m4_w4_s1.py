# Generated from templates/triton/softmax.py.jinja; do not edit. Regenerate: attngen build
#   softmax_c256_fp32_single_m4_w4_s1
"""Softmax of rows, single, float32.

    y = exp(x - lse),    lse = log(sum(exp(x)))

One program computes whole rows, 4 at a time, which stay in its registers: x is read once. All sums
are float32.
"""

import functools
import itertools
import math

import torch
import triton
import triton.language as tl

COLUMNS = tl.constexpr(256)
BLOCK_M = tl.constexpr(4)
BLOCK_C = tl.constexpr(256)
NUM_WARPS = 4
NUM_STAGES = tl.constexpr(1)
DTYPE = torch.float32
OUT_DTYPE = torch.float32
LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit(
    do_not_specialize=[
        "num_rows",
    ]
)
def softmax_c256_fp32_single_m4_w4_s1(
    x_ptr,
    y_ptr,
    stride_x_outer,
    stride_x_inner,
    stride_x_column,
    stride_y_outer,
    stride_y_inner,
    stride_y_column,
    num_rows,
    inner,
    columns,
    unit: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute BLOCK_M rows, each of which is held whole."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs = tl.arange(0, BLOCK_C)
    # Columns and strides count units: of so many elements both are multiples.
    columns = columns * unit
    held = (row < num_rows)[:, None] & (offs < columns)[None, :]

    # Addresses, in 64 bits: a row times its stride may exceed 32.
    outer, within = (row // inner).to(tl.int64)[:, None], (row % inner).to(tl.int64)[:, None]
    at = offs.to(tl.int64)[None, :]
    x_row = x_ptr + (outer * stride_x_outer + within * stride_x_inner) * unit
    y_row = y_ptr + (outer * stride_y_outer + within * stride_y_inner) * unit

    if PDL:
        # It was launched while the kernel before it still ran: wait for all that wrote.
        tl.extra.cuda.gdc_wait()
    x = tl.load(x_row + at * stride_x_column, mask=held, other=float("-inf")).to(tl.float32)
    # The lowest finite number takes no part in the sum: it keeps -inf - m from being NaN.
    m = tl.maximum(tl.max(x, 1), LOWEST)
    p = tl.math.exp2((x - m[:, None]) * LOG2_E)
    l = tl.sum(p, 1)

    # A row of nothing but -inf is the empty state: y = 0, lse = -inf.
    l = tl.where(l == 0.0, 1.0, l)
    inverse_l = 1.0 / l
    y = p * inverse_l[:, None]
    tl.store(y_row + at * stride_y_column, y.to(tl.float32), mask=held)


def softmax(
    x: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax of rows, single, float32.

    There is no backward. Tensors may have any strides; where the leading dimensions do not fold
    into two by their strides, x is copied first, and out is refused. out may be x itself. The
    launch does not synchronise and is safe inside CUDA-graph capture.

    Args:
        x: [..., n], float32, rows of up to 256 columns.
        out: takes y, shaped like x; allocated if not given.

    Returns:
        y: like x, float32.
        A row of nothing but -inf has y = 0; a row with +inf or NaN is NaN.

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape, strides or value.
    """
    _check_tensor("x", x, DTYPE, x)
    if x.dim() == 0:
        raise ValueError("x: got a single number, allowed is a tensor [..., n]")
    columns, num_rows = x.shape[-1], math.prod(x.shape[:-1])
    if columns > COLUMNS.value:
        raise ValueError(f"x: got rows of {columns}, allowed are up to {COLUMNS.value} columns")
    if num_rows >= 2**31 - BLOCK_M.value:
        raise ValueError(f"x: got {num_rows} rows, allowed are less than 2**31")
    if out is None:
        out = x.new_empty(x.shape, dtype=OUT_DTYPE)
    else:
        _check_tensor("out", out, OUT_DTYPE, x)
        if out.shape != x.shape:
            raise ValueError(f"out: got shape {tuple(out.shape)}, allowed is {tuple(x.shape)}")
        if any(n > 1 and step == 0 for n, step in zip(out.shape, out.stride(), strict=True)):
            raise ValueError(f"out: got strides {out.stride()}, allowed are any but 0")
    if num_rows == 0 or columns == 0:
        return out
    folded = _folded(x, out)
    if folded is None:
        x = x.contiguous()
        folded = _folded(x, out)
    if folded is None:
        raise ValueError(
            f"out: got strides {out.stride()}, allowed are those that fold leading dimensions"
            " into two"
        )
    inner, (x_strides, out_strides) = folded
    unit = _unit(columns, folded[1])
    num_tiles = triton.cdiv(num_rows, BLOCK_M.value)
    # A graph that torch compiles asks no device while it is traced.
    pdl = not torch.compiler.is_compiling() and _has_pdl(x.device)
    with torch.cuda.device(x.get_device()):
        _KERNEL[(num_tiles,)](
            x,
            out,
            x_strides[0] // unit,
            x_strides[1] // unit,
            x.stride(-1),
            out_strides[0] // unit,
            out_strides[1] // unit,
            out.stride(-1),
            num_rows,
            inner,
            columns // unit,
            unit,
            PDL=pdl,
            **({"launch_pdl": True} if pdl else {}),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES.value,
            enable_fp_fusion=True,
        )
    return out


@functools.cache
def _has_pdl(device: torch.device) -> bool:
    """Can a kernel be launched while the one before it ends? On NVIDIA's GPUs from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


_KERNEL = softmax_c256_fp32_single_m4_w4_s1
_INTERPRETED = not isinstance(_KERNEL, triton.JITFunction)


def _check_tensor(name: str, tensor: torch.Tensor, dtype: torch.dtype, x: torch.Tensor) -> None:
    """Hold a tensor to a dtype and to x's device, and that to one that the kernel runs on."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: got {tensor.dtype}, allowed is {dtype}")
    if tensor.device != x.device:
        raise TypeError(f"{name}: got device {tensor.device}, allowed is that of x ({x.device})")
    if not (tensor.is_cuda or _INTERPRETED):
        raise TypeError(
            f"{name}: got device {tensor.device}, allowed is a GPU"
            " (or the CPU, with TRITON_INTERPRET=1 set before triton is imported)"
        )


def _unit(columns: int, strides: list[tuple[int, int]]) -> int:
    """The factor that strides and columns share and that the compiler has to be told.

    It knows by itself what is a multiple of 16; of what is not, it is told 16 bytes of elements.
    """
    numbers = [columns, *itertools.chain(*strides)]
    vector = 16 // DTYPE.itemsize
    known = all(number % 16 == 0 for number in numbers)
    return 1 if known or any(number % vector for number in numbers) else vector


def _folded(*tensors: torch.Tensor) -> tuple[int, list[tuple[int, int]]] | None:
    """The leading dimensions of tensors of one shape as two, by strides alone.

    Returns:
        The size of the inner dimension, then the strides (outer, inner) of every tensor; None
        where two dimensions are not enough.
    """
    if all(tensor.is_contiguous() for tensor in tensors):
        return 1, [(tensors[0].shape[-1], 0)] * len(tensors)
    sizes: list[int] = []
    strides: list[list[int]] = []
    for d, size in enumerate(tensors[0].shape[:-1]):
        steps = [tensor.stride(d) for tensor in tensors]
        if size == 1:
            continue
        if sizes and strides[-1] == [step * size for step in steps]:
            sizes[-1], strides[-1] = sizes[-1] * size, steps
        else:
            sizes.append(size)
            strides.append(steps)
    if len(sizes) > 2:
        return None
    none = [0] * len(tensors)
    if len(sizes) < 2:
        # One dimension is the outer one: an inner size of 1 is known when a kernel is compiled.
        return 1, list(zip(strides[0] if strides else none, none, strict=True))
    return sizes[1], list(zip(*strides, strict=True))
