# Generated from templates/triton/softmax_topk.py.jinja; do not edit. Regenerate: attngen build
#   softmax_topk_c131072_k8_fp32_n2048_w2_s1
"""The 8 largest of each row and their softmax, float32.

    p = exp(x - lse) of the k largest entries x of a row,    lse = log(sum(exp(x)))

One program goes through one row once. Each thread keeps the state of its own columns, the largest
so far (m) and the sum of exp(x - m) (l); the program keeps the K largest entries of the row, and
searches a step for more only if its largest entry is above the least of them. Milakov and
Gimelshein, arXiv 1805.02867, section 4. All sums are float32.
"""

import functools
import itertools
import math

import torch
import triton
import triton.language as tl

K = tl.constexpr(8)
BLOCK_K = tl.constexpr(8)
LANES = tl.constexpr(256)
VECTORS = tl.constexpr(8)
BLOCK_N = tl.constexpr(2048)
NUM_WARPS = 2
NUM_STAGES = tl.constexpr(1)
DTYPE = torch.float32
LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)
NOWHERE = tl.constexpr(2147483647)


@triton.jit
def online_softmax_step(x, m, l, scale_log2):
    """Fold VECTORS entries of each lane into the lanes' states (m, l).

    scale_log2 takes a difference of entries to base 2. The difference comes first, so that entries
    of any size keep its full precision and no exponential exceeds 1.
    """
    m_new = tl.maximum(m, tl.max(x, 0))
    p = tl.math.exp2((x - m_new[None, :]) * scale_log2)
    l = l * tl.math.exp2((m - m_new) * scale_log2) + tl.sum(p, 0)
    return m_new, l


@triton.jit
def search_step(x, offs, top_x, top_at):
    """Take from a step's entries x at columns offs those that belong to the row's largest.

    Earlier columns come first among equals: an entry has to be above the least of those kept, which
    then gives way, the one furthest to the right if there are several.
    """
    best = tl.max(tl.max(x, 0), 0)
    least = tl.min(top_x, 0)
    while best > least:
        at = tl.min(tl.min(tl.where(x == best, offs, NOWHERE), 0), 0)
        last = tl.max(tl.where(top_x == least, top_at, -1), 0)
        gives_way = (top_x == least) & (top_at == last)
        top_x = tl.where(gives_way, best, top_x)
        top_at = tl.where(gives_way, at, top_at)
        x = tl.where(offs == at, float("-inf"), x)
        best = tl.max(tl.max(x, 0), 0)
        least = tl.min(top_x, 0)
    return top_x, top_at


@triton.jit(
    do_not_specialize=[
        "k",
    ]
)
def softmax_topk_c131072_k8_fp32_n2048_w2_s1(
    x_ptr,
    values_ptr,
    indices_ptr,
    probabilities_ptr,
    stride_x_outer,
    stride_x_inner,
    stride_x_column,
    inner,
    columns,
    k,
    unit: tl.constexpr,
    PDL: tl.constexpr,
):
    """Find the k largest entries of one row and their softmax."""
    row = tl.program_id(0)
    # Addresses, in 64 bits: a row times its stride may exceed 32.
    outer, within = (row // inner).to(tl.int64), (row % inner).to(tl.int64)
    x_at = outer * stride_x_outer + within * stride_x_inner
    x_row = x_ptr + x_at * unit
    # Columns and strides count units: of so many elements both are multiples.
    columns = columns * unit
    step = tl.arange(0, VECTORS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    full_end = columns // BLOCK_N * BLOCK_N
    if PDL:
        # It was launched while the kernel before it still ran: wait for all that wrote.
        tl.extra.cuda.gdc_wait()

    # m starts at the lowest finite number with l = 0, which any entry replaces without a trace;
    # -inf itself would make -inf - m NaN.
    m = tl.full([LANES], LOWEST, tl.float32)
    l = tl.zeros([LANES], tl.float32)
    # Places without an entry stand far to the right, each elsewhere; those beyond k never give way.
    place = tl.arange(0, BLOCK_K)
    top_x = tl.where(place < k, float("-inf"), float("inf"))
    top_at = NOWHERE - 1 - place
    for start in tl.range(0, full_end, BLOCK_N, num_stages=NUM_STAGES):
        offs = start + step
        at = offs.to(tl.int64)
        x = tl.load(x_row + at * stride_x_column).to(tl.float32)
        m, l = online_softmax_step(x, m, l, LOG2_E)
        top_x, top_at = search_step(x, offs, top_x, top_at)
    for start in tl.range(full_end, columns, BLOCK_N):
        offs = start + step
        held = offs < columns
        at = offs.to(tl.int64)
        x = tl.load(x_row + at * stride_x_column, mask=held, other=float("-inf")).to(tl.float32)
        m, l = online_softmax_step(x, m, l, LOG2_E)
        top_x, top_at = search_step(x, offs, top_x, top_at)

    # The lanes' states are merged. A row of nothing but -inf is the empty state: p = 0.
    m_lanes = m
    m = tl.max(m_lanes, 0)
    l = tl.sum(l * tl.math.exp2((m_lanes - m) * LOG2_E), 0)
    l = tl.where(l == 0.0, 1.0, l)

    # An entry's rank is the number of those before it, lower columns first among equals.
    top_x = tl.where(place < k, top_x, float("-inf"))
    top_at = tl.where(place < k, top_at, NOWHERE)
    is_above = top_x[None, :] > top_x[:, None]
    is_before = (top_x[None, :] == top_x[:, None]) & (top_at[None, :] < top_at[:, None])
    rank = tl.sum((is_above | is_before).to(tl.int32), 1)

    # A row with +inf or NaN has l = NaN and holds NaN at every rank.
    p = tl.math.exp2((top_x - m) * LOG2_E) * (1.0 / l)
    top_x = tl.where(l == l, top_x, float("nan"))
    top_at = tl.where(top_x > float("-inf"), top_at, -1)
    at = row.to(tl.int64) * k + rank
    tl.store(values_ptr + at, top_x.to(tl.float32), mask=place < k)
    tl.store(indices_ptr + at, top_at.to(tl.int64), mask=place < k)
    tl.store(probabilities_ptr + at, p, mask=place < k)


def softmax_topk(
    x: torch.Tensor,
    k: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The 8 largest of each row and their softmax, float32.

    There is no backward. x may have any strides; where its leading dimensions do not fold into two
    by their strides, it is copied first. The launch does not synchronise and is safe inside
    CUDA-graph capture.

    Args:
        x: [..., n], float32, rows of any length below 2**30.
        k: entries a row, up to 8, which it is where it is not given.

    Returns:
        values: [..., k], float32, the k largest entries, largest first.
        indices: [..., k], int64, their columns; the lower one first among equals.
        probabilities: [..., k], float32, their softmax over the whole row.
        An entry of -inf counts as masked: ranks for which a row has no other entry left hold
        (-inf, -1, 0). In a row with +inf or NaN all ranks hold (NaN, -1, NaN).

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape or value.
    """
    _check_tensor("x", x, DTYPE, x)
    if x.dim() == 0:
        raise ValueError("x: got a single number, allowed is a tensor [..., n]")
    columns, num_rows = x.shape[-1], math.prod(x.shape[:-1])
    if columns >= 2**30:
        raise ValueError(f"x: got rows of {columns}, allowed are less than 2**30 columns")
    if num_rows >= 2**31:
        raise ValueError(f"x: got {num_rows} rows, allowed are less than 2**31")
    if k is None:
        k = K.value
    elif isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k: got {k!r}, allowed is an int")
    if not 0 <= k <= K.value:
        raise ValueError(f"k: got {k}, allowed is 0 to {K.value}")
    values = x.new_empty((*x.shape[:-1], k))
    indices = x.new_empty((*x.shape[:-1], k), dtype=torch.int64)
    probabilities = x.new_empty((*x.shape[:-1], k), dtype=torch.float32)
    if num_rows == 0 or k == 0:
        return values, indices, probabilities
    folded = _folded(x)
    if folded is None:
        x = x.contiguous()
        folded = 1, [(x.stride(-2), 0)]
    inner, (x_strides,) = folded
    unit = _unit(columns, folded[1])
    num_tiles = num_rows
    # A graph that torch compiles asks no device while it is traced.
    pdl = not torch.compiler.is_compiling() and _has_pdl(x.device)
    with torch.cuda.device(x.get_device()):
        _KERNEL[(num_tiles,)](
            x,
            values,
            indices,
            probabilities,
            x_strides[0] // unit,
            x_strides[1] // unit,
            x.stride(-1),
            inner,
            columns // unit,
            k,
            unit,
            PDL=pdl,
            **({"launch_pdl": True} if pdl else {}),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES.value,
            enable_fp_fusion=True,
        )
    return values, indices, probabilities


@functools.cache
def _has_pdl(device: torch.device) -> bool:
    """Can a kernel be launched while the one before it ends? On NVIDIA's GPUs from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


_KERNEL = softmax_topk_c131072_k8_fp32_n2048_w2_s1
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
