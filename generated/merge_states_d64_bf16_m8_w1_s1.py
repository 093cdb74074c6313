# Generated from templates/triton/merge_states.py.jinja; do not edit. Regenerate: attngen build
#   merge_states_d64_bf16_m8_w1_s1
"""Merge of attention states, head dim 64, bfloat16.

    m = max(lse_i),    w_i = exp(lse_i - m),    l = sum(w_i),
    o = sum(w_i / l * o_i),    lse = m + log(l)

One program merges 8 rows, each one head of one token. A state (o, lse) is the mean of some keys'
values and the logarithm of their total weight; states over disjoint keys form a commutative
monoid: Dao et al., arXiv 2205.14135, section 3.1. It reads every lse twice: for the sum of the
weights, and for each state's scale. All arithmetic is float32.
"""

import functools
from itertools import chain, pairwise

import torch
import triton
import triton.language as tl

HEAD_DIM = tl.constexpr(64)
BLOCK_C = tl.constexpr(64)
CHUNKS = tl.constexpr(1)
BLOCK_M = tl.constexpr(8)
BLOCK_STATES = tl.constexpr(8)
NUM_WARPS = 1
NUM_STAGES = 1
DTYPE = torch.bfloat16
OUT_DTYPE = torch.bfloat16
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(
    do_not_specialize=[
        "num_states",
        "tokens",
        "heads",
        "tiles_a_sequence",
    ]
)
def merge_states_d64_bf16_m8_w1_s1(
    o_ptr,
    lse_ptr,
    out_ptr,
    out_lse_ptr,
    stride_out_batch,
    stride_out_token,
    stride_out_head,
    stride_out_lse_batch,
    stride_out_lse_token,
    stride_out_lse_head,
    stride_o_batch,
    stride_o_token,
    stride_o_head,
    stride_lse_batch,
    stride_lse_token,
    stride_lse_head,
    stride_o_state,
    stride_lse_state,
    num_states,
    tokens,
    heads,
    tiles_a_sequence,
    PDL: tl.constexpr,
):
    """Merge the states of BLOCK_M rows; a row is one head of one token."""
    # Which rows: heads of tokens of one sequence; heads vary fastest. Tile p begins at row p *
    # BLOCK_M: worked out so that no division takes 64 bits, which would be a hundred instructions.
    # `token` counts from the tile's first one on; times a stride it takes 64 bits.
    batch = (tl.program_id(0) // tiles_a_sequence).to(tl.int64)
    tile = tl.program_id(0) % tiles_a_sequence
    behind = tile % heads * BLOCK_M
    first_token = (tile // heads).to(tl.int64) * BLOCK_M + behind // heads
    row = behind % heads + tl.arange(0, BLOCK_M)
    token = (row // heads).to(tl.int64)
    head = (row % heads).to(tl.int64)
    in_range = token < tokens - first_token
    # Columns in chunks, all of a row's in the registers of the few threads that share its weights.
    offs_d = tl.arange(0, CHUNKS)[None, :, None] * BLOCK_C + tl.arange(0, BLOCK_C)[None, None, :]
    if PDL:
        # It was launched while the kernel before it still ran: wait for all that wrote.
        tl.extra.cuda.gdc_wait()
    lse_ptr += batch * stride_lse_batch + first_token * stride_lse_token
    lse_rows = token * stride_lse_token + head * stride_lse_head
    o_ptr += batch * stride_o_batch + first_token * stride_o_token
    o_rows = token * stride_o_token + head * stride_o_head

    # First the sum of all weights: each scale is then made before o is multiplied by it, so that
    # o stays a convex combination and nothing overflows.
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    for start_state in tl.range(0, num_states, BLOCK_STATES):
        states = start_state + tl.arange(0, BLOCK_STATES)
        lse = tl.load(
            lse_ptr + lse_rows[:, None] + states.to(tl.int64)[None, :] * stride_lse_state,
            mask=in_range[:, None] & (states < num_states)[None, :],
            other=float("-inf"),
        )
        # An lse of +inf means empty too, as FlashAttention-2 writes it.
        lse = tl.where(lse == float("inf"), float("-inf"), lse)
        m_new = tl.maximum(m, tl.max(lse, 1))
        # Where all are empty: any finite reference keeps -inf - m from being NaN.
        reference = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.math.exp2((m - reference) * LOG2_E)
        l += tl.sum(tl.math.exp2((lse - reference[:, None]) * LOG2_E), 1)
        m = m_new

    # Then the states themselves. The o of an empty one may be NaN. It is replaced, not multiplied
    # by 0: by -0.0, which added to the others' sum leaves every bit of that as it is, so that a
    # state that is alone, whose scale is 1, comes out bit for bit; by 0 where all are empty. (As a
    # constant Triton knows no -0.0.)
    is_empty = l == 0.0
    nothing = tl.where(is_empty, 1.0, -1.0)[:, None, None] * 0.0
    reference = tl.where(is_empty, 0.0, m)
    total = tl.where(is_empty, 1.0, l)
    o = tl.broadcast_to(nothing, [BLOCK_M, CHUNKS, BLOCK_C])
    for state in tl.range(0, num_states):
        offset = tl.cast(state, tl.int64)
        has_state = in_range
        lse_ptrs = lse_ptr + lse_rows + offset * stride_lse_state
        lse_i = tl.load(lse_ptrs, mask=has_state, other=float("-inf"))
        o_i = tl.load(
            o_ptr + offset * stride_o_state + offs_d + o_rows[:, None, None],
            mask=has_state[:, None, None],
            other=0.0,
        ).to(tl.float32)
        lse_i = tl.where(lse_i == float("inf"), float("-inf"), lse_i)
        o_i = tl.where((lse_i == float("-inf"))[:, None, None], nothing, o_i)
        scale = tl.math.exp2((lse_i - reference) * LOG2_E) * (1.0 / total)
        o += scale[:, None, None] * o_i
    lse = tl.where(total == 1.0, m, reference + tl.log(total))

    out_ptr += batch * stride_out_batch + first_token * stride_out_token
    out_rows = token * stride_out_token + head * stride_out_head
    out_ptrs = out_ptr + offs_d + out_rows[:, None, None]
    tl.store(out_ptrs, o.to(tl.bfloat16), mask=in_range[:, None, None])
    if out_lse_ptr is not None:
        out_lse_ptr += batch * stride_out_lse_batch + first_token * stride_out_lse_token
        out_lse_rows = token * stride_out_lse_token + head * stride_out_lse_head
        tl.store(out_lse_ptr + out_lse_rows, lse, mask=in_range)


def merge_states(
    o: torch.Tensor,
    lse: torch.Tensor,
    *,
    lse_layout: str = "ht",
    out: torch.Tensor | None = None,
    out_lse: torch.Tensor | None = None,
    return_lse: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Merge of attention states, head dim 64, bfloat16.

    Every tensor may have any strides, so long as the last dimension of o is contiguous and batch
    dimensions, where there are several, view as one. The launch does not synchronise and is safe
    inside CUDA-graph capture.

    Args:
        o: [n, *batch, tokens, heads, 64], bfloat16; n may be 0.
        lse: float32, natural logarithm, in the layout that lse_layout names; -inf or +inf
            where the state is empty, whose o is then ignored, NaN or not.
        lse_layout: "ht" for [n, *batch, heads, tokens], "th" for [n, *batch, tokens, heads].
        out: takes o, in memory of its own.
        out_lse: takes lse, in memory of its own.
        return_lse: False leaves lse out.

    Returns:
        o: [*batch, tokens, heads, 64], bfloat16; 0 where all states are empty.
        lse: like lse without n, -inf where all states are empty; None without return_lse.
        A NaN lse gives NaN in both.

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape, strides or value, or one that overlaps another.
    """
    _check_o("o", o, o, DTYPE)
    if o.dim() < 4:
        raise ValueError(
            f"o: got shape {tuple(o.shape)}, allowed is [n, *batch, tokens, heads, head_dim]"
        )
    _check_lse("lse", lse, o, o.shape[:-1], lse_layout)
    shape = tuple(o.shape[1:])
    *_, tokens, heads, _ = shape
    token, head = (-1, -2) if lse_layout == "ht" else (-2, -1)
    inputs = {"o": o, "lse": lse}
    if out is None:
        out = o.new_empty(shape, dtype=OUT_DTYPE)
    else:
        _check_o("out", out, o, OUT_DTYPE)
        _check_shape("out", out, shape)
        _check_apart("out", out, inputs, ())
    if not return_lse:
        if out_lse is not None:
            raise ValueError("out_lse: got a tensor, allowed without return_lse is None")
    elif out_lse is None:
        out_lse = lse.new_empty(lse.shape[1:])
    else:
        _check_lse("out_lse", out_lse, o, shape[:-1], lse_layout)
        _check_apart("out_lse", out_lse, {**inputs, "out": out}, ())
    strides = [
        _strides("out", out, -3, -2),
        (0, 0, 0) if out_lse is None else _strides("out_lse", out_lse, token, head),
    ]
    strides += [_strides("o", o, -3, -2, 1), _strides("lse", lse, token, head, 1)]
    num_sequences = o.shape[1:-3].numel()
    if _is_one_sequence(strides, tokens):
        strides = [(0, batch if tokens == 1 else token, head) for batch, token, head in strides]
        tokens *= num_sequences
        num_sequences = 1
    tiles_a_sequence = triton.cdiv(tokens * heads, BLOCK_M.value)
    num_tiles = num_sequences * tiles_a_sequence
    if num_tiles == 0:
        return out, out_lse
    # A graph that torch compiles asks no device while it is traced.
    pdl = not torch.compiler.is_compiling() and _has_pdl(o.device)
    with torch.cuda.device(o.get_device()):
        _KERNEL[(num_tiles,)](
            o,
            lse,
            out,
            out_lse,
            *chain.from_iterable(strides),
            o.stride(0),
            lse.stride(0),
            o.shape[0],
            tokens,
            heads,
            tiles_a_sequence,
            PDL=pdl,
            **({"launch_pdl": True} if pdl else {}),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
            enable_fp_fusion=True,
        )
    return out, out_lse


@functools.cache
def _has_pdl(device: torch.device) -> bool:
    """Can a kernel be launched while the one before it ends? On NVIDIA's GPUs from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return bool(torch.cuda.get_device_capability(device) >= (9, 0))


_KERNEL = merge_states_d64_bf16_m8_w1_s1
_INTERPRETED = not isinstance(_KERNEL, triton.JITFunction)


def _check_tensor(name: str, tensor: torch.Tensor, o: torch.Tensor, dtype: torch.dtype) -> None:
    """Hold a tensor to a dtype and to o's device, and that to one that the kernel runs on."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: got {tensor.dtype}, allowed is {dtype}")
    if tensor.device != o.device:
        raise TypeError(f"{name}: got device {tensor.device}, allowed is that of o ({o.device})")
    if not (tensor.is_cuda or _INTERPRETED):
        raise TypeError(
            f"{name}: got device {tensor.device}, allowed is a GPU"
            " (or the CPU, with TRITON_INTERPRET=1 set before triton is imported)"
        )


def _check_o(name: str, tensor: torch.Tensor, o: torch.Tensor, dtype: torch.dtype) -> None:
    """Hold a tensor to 64 contiguous columns, a dtype and o's device."""
    _check_tensor(name, tensor, o, dtype)
    if tensor.dim() == 0 or tensor.shape[-1] != HEAD_DIM.value:
        raise ValueError(
            f"{name}: got shape {tuple(tensor.shape)}, allowed is [..., {HEAD_DIM.value}]"
        )
    if tensor.stride(-1) != 1 and HEAD_DIM.value > 1:
        raise ValueError(f"{name}: got last-dimension stride {tensor.stride(-1)}, allowed is 1")


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is {shape}")


def _check_lse(
    name: str, lse: torch.Tensor, o: torch.Tensor, rows: tuple[int, ...], lse_layout: str
) -> None:
    """Hold an lse to float32 and to rows [..., tokens, heads] in its layout."""
    *outer, tokens, heads = rows
    shapes = {"ht": (*outer, heads, tokens), "th": (*outer, tokens, heads)}
    if lse_layout not in shapes:
        raise ValueError(f"lse_layout: got {lse_layout!r}, allowed are {', '.join(shapes)}")
    _check_tensor(name, lse, o, torch.float32)
    got = tuple(lse.shape)
    if got != shapes[lse_layout]:
        fits = "".join(f" (it fits {key!r})" for key, shape in shapes.items() if shape == got)
        raise ValueError(
            f"{name}: got shape {got}, allowed with lse_layout={lse_layout!r} is"
            f" {shapes[lse_layout]}{fits}"
        )


def _strides(
    name: str, tensor: torch.Tensor, token: int, head: int, batch: int = 0
) -> tuple[int, int, int]:
    """Strides of the batch dimensions from `batch` on, taken as one, of token and of head."""
    if max(tensor.shape[token], tensor.shape[head]) >= 2**30:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, allowed is less than 2**30")
    dims = range(batch, tensor.dim() + min(token, head))
    outer = [(tensor.shape[i], tensor.stride(i)) for i in dims if tensor.shape[i] != 1]
    if any(wide != size * narrow for (_, wide), (size, narrow) in pairwise(outer)):
        raise ValueError(
            f"{name}: got strides {tensor.stride()}, allowed are batch dimensions that view as one"
        )
    return outer[-1][1] if outer else 0, tensor.stride(token), tensor.stride(head)


def _is_one_sequence(strides: list[tuple[int, int, int]], tokens: int) -> bool:
    """Do the tokens of a sequence follow those of the one before it, in every tensor?"""
    return tokens == 1 or all(batch == tokens * token for batch, token, _ in strides)


def _check_apart(
    name: str, output: torch.Tensor, others: dict[str, torch.Tensor], exactly: tuple[str, ...]
) -> None:
    """Hold an output to memory of its own, or to exactly that of one of the inputs named."""
    strides = output.stride()
    if any(stride == 0 and size > 1 for stride, size in zip(strides, output.shape, strict=True)):
        raise ValueError(f"{name}: got strides {strides}, allowed are none of 0")
    for other_name, other in others.items():
        same = other.data_ptr() == output.data_ptr() and other.stride() == output.stride()
        if same and other.dtype == output.dtype and other_name in exactly:
            continue
        if _overlap(output, other):
            or_exactly = f", or exactly that of {' or '.join(exactly)}" if exactly else ""
            raise ValueError(
                f"{name}: got memory that overlaps {other_name}, allowed is its own{or_exactly}"
            )


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Do two tensors share an element? Views that interleave do not, if their strides agree."""
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    if x.numel() == 0 or y.numel() == 0:
        return False
    if _end(x) <= y.data_ptr() or _end(y) <= x.data_ptr():
        return False
    gap, rest = divmod(abs(x.data_ptr() - y.data_ptr()), x.element_size())
    if x.shape != y.shape or x.stride() != y.stride() or x.dtype != y.dtype or rest:
        return True
    return _is_between(gap, sorted(zip(x.stride(), x.shape, strict=True), reverse=True))


def _end(tensor: torch.Tensor) -> int:
    """The address after a tensor's last element."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _is_between(gap: int, dims: list[tuple[int, int]]) -> bool:
    """Does `gap` lead from one element of a view to another? dims: (stride, size), widest first."""
    if not dims:
        return gap == 0
    (stride, size), *inner = dims
    if size == 1:
        return _is_between(gap, inner)
    if stride <= sum((n - 1) * s for s, n in inner):
        return True
    steps = gap // stride
    return any(abs(n) < size and _is_between(gap - n * stride, inner) for n in (steps, steps + 1))
