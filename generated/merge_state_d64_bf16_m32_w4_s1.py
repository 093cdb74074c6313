# Generated from templates/triton/merge_state.py.jinja; do not edit. Regenerate: attngen build
#   merge_state_d64_bf16_m32_w4_s1
"""Merge of two attention states, head dim 64, bfloat16.

    m = max(lse_a, lse_b),    w = exp(lse - m),    lse = m + log(w_a + w_b),
    o = w_a / (w_a + w_b) * o_a + w_b / (w_a + w_b) * o_b

One program merges 32 rows, each one head of one token. A state (o, lse) is the mean of some keys'
values and the logarithm of their total weight; states over disjoint keys form a commutative
monoid: Dao et al., arXiv 2205.14135, section 3.1. All arithmetic is float32.
"""

import functools
from itertools import chain, pairwise

import torch
import triton
import triton.language as tl

HEAD_DIM = tl.constexpr(64)
BLOCK_C = tl.constexpr(64)
CHUNKS = tl.constexpr(1)
BLOCK_M = tl.constexpr(32)
NUM_WARPS = 4
NUM_STAGES = 1
DTYPE = torch.bfloat16
OUT_DTYPE = torch.bfloat16
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(
    do_not_specialize=[
        "tokens",
        "heads",
        "tiles_a_sequence",
        "tokens_with_context",
    ]
)
def merge_state_d64_bf16_m32_w4_s1(
    o_a_ptr,
    lse_a_ptr,
    o_b_ptr,
    lse_b_ptr,
    out_ptr,
    out_lse_ptr,
    stride_o_a_batch,
    stride_o_a_token,
    stride_o_a_head,
    stride_lse_a_batch,
    stride_lse_a_token,
    stride_lse_a_head,
    stride_o_b_batch,
    stride_o_b_token,
    stride_o_b_head,
    stride_lse_b_batch,
    stride_lse_b_token,
    stride_lse_b_head,
    stride_out_batch,
    stride_out_token,
    stride_out_head,
    stride_out_lse_batch,
    stride_out_lse_token,
    stride_out_lse_head,
    tokens,
    heads,
    tiles_a_sequence,
    tokens_with_context,
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
    # A token without context has no state a: its result is its state b.
    has_a = in_range & (token < tokens_with_context - first_token)

    # All loads at once: those of o do not wait for lse to say which states are empty.
    lse_a_ptr += batch * stride_lse_a_batch + first_token * stride_lse_a_token
    lse_a_rows = token * stride_lse_a_token + head * stride_lse_a_head
    lse_b_ptr += batch * stride_lse_b_batch + first_token * stride_lse_b_token
    lse_b_rows = token * stride_lse_b_token + head * stride_lse_b_head
    o_a_ptr += batch * stride_o_a_batch + first_token * stride_o_a_token
    o_a_rows = token * stride_o_a_token + head * stride_o_a_head
    o_b_ptr += batch * stride_o_b_batch + first_token * stride_o_b_token
    o_b_rows = token * stride_o_b_token + head * stride_o_b_head
    if PDL:
        # It was launched while the kernel before it still ran: wait for all that wrote.
        tl.extra.cuda.gdc_wait()
    lse_a = tl.load(lse_a_ptr + lse_a_rows, mask=has_a, other=float("-inf"))
    lse_b = tl.load(lse_b_ptr + lse_b_rows, mask=in_range, other=float("-inf"))
    o_a = tl.load(
        o_a_ptr + offs_d + o_a_rows[:, None, None],
        mask=has_a[:, None, None],
        other=0.0,
    ).to(tl.float32)
    o_b = tl.load(
        o_b_ptr + offs_d + o_b_rows[:, None, None],
        mask=in_range[:, None, None],
        other=0.0,
    ).to(tl.float32)

    # An lse of +inf means empty too, as FlashAttention-2 writes it.
    lse_a = tl.where(lse_a == float("inf"), float("-inf"), lse_a)
    lse_b = tl.where(lse_b == float("inf"), float("-inf"), lse_b)
    # The o of an empty state may be NaN. It is replaced, not multiplied by 0: by -0.0, which added
    # to the other state's o leaves every bit of that as it is; by 0 where both are empty. (As a
    # constant Triton knows no -0.0.)
    a_is_empty = lse_a == float("-inf")
    b_is_empty = lse_b == float("-inf")
    nothing = tl.where(a_is_empty & b_is_empty, 1.0, -1.0)[:, None, None] * 0.0
    o_a = tl.where(a_is_empty[:, None, None], nothing, o_a)
    o_b = tl.where(b_is_empty[:, None, None], nothing, o_b)

    # The scales are made before anything is multiplied by them, so that o is a convex combination
    # and nothing overflows. Beside an empty state they are exactly 1 and 0.
    m = tl.maximum(lse_a, lse_b)
    # Where both are empty: any finite reference keeps -inf - m from being NaN.
    reference = tl.where(m == float("-inf"), 0.0, m)
    w_a = tl.math.exp2((lse_a - reference) * LOG2_E)
    w_b = tl.math.exp2((lse_b - reference) * LOG2_E)
    total = tl.where(a_is_empty & b_is_empty, 1.0, w_a + w_b)
    scale_a = w_a * (1.0 / total)
    scale_b = w_b * (1.0 / total)
    o = scale_a[:, None, None] * o_a + scale_b[:, None, None] * o_b
    lse = tl.where(total == 1.0, m, reference + tl.log(total))

    # Every warp has read its states before one of them is overwritten: out may be o_a or o_b, and
    # out_lse may be lse_a or lse_b.
    tl.debug_barrier()
    out_ptr += batch * stride_out_batch + first_token * stride_out_token
    out_rows = token * stride_out_token + head * stride_out_head
    out_ptrs = out_ptr + offs_d + out_rows[:, None, None]
    tl.store(out_ptrs, o.to(tl.bfloat16), mask=in_range[:, None, None])
    if out_lse_ptr is not None:
        out_lse_ptr += batch * stride_out_lse_batch + first_token * stride_out_lse_token
        out_lse_rows = token * stride_out_lse_token + head * stride_out_lse_head
        tl.store(out_lse_ptr + out_lse_rows, lse, mask=in_range)


def merge_state(
    o_a: torch.Tensor,
    lse_a: torch.Tensor,
    o_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    lse_layout: str = "ht",
    out: torch.Tensor | None = None,
    out_lse: torch.Tensor | None = None,
    return_lse: bool = True,
    prefill_tokens_with_context: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Merge of two attention states, head dim 64, bfloat16.

    Every tensor may have any strides, so long as the last dimension of o is contiguous and batch
    dimensions, where there are several, view as one. The launch does not synchronise and is safe
    inside CUDA-graph capture.

    Args:
        o_a: [*batch, tokens, heads, 64], bfloat16.
        lse_a: float32, natural logarithm, in the layout that lse_layout names; -inf or +inf
            where the state is empty, whose o is then ignored, NaN or not.
        o_b: like o_a.
        lse_b: like lse_a.
        lse_layout: "ht" for [*batch, heads, tokens], "th" for [*batch, tokens, heads].
        out: takes o; exactly o_a or o_b (where its dtype is theirs), or memory of its own.
        out_lse: takes lse; exactly lse_a or lse_b, or memory of its own.
        return_lse: False leaves lse out.
        prefill_tokens_with_context: only so many tokens (of each sequence) have a state a; the
            others' result is their state b. All of them where it is not given.

    Returns:
        o: like o_a, bfloat16; 0 where both states are empty.
        lse: like lse_a, -inf where both states are empty; None without return_lse.
        A NaN lse gives NaN in both.

    Raises:
        TypeError: an argument of the wrong type, dtype or device.
        ValueError: an argument of the wrong shape, strides or value, or one that overlaps another.
    """
    _check_o("o_a", o_a, o_a, DTYPE)
    _check_o("o_b", o_b, o_a, DTYPE)
    if o_a.dim() < 3:
        raise ValueError(
            f"o_a: got shape {tuple(o_a.shape)}, allowed is [*batch, tokens, heads, head_dim]"
        )
    _check_shape("o_b", o_b, tuple(o_a.shape))
    _check_lse("lse_a", lse_a, o_a, o_a.shape[:-1], lse_layout)
    _check_lse("lse_b", lse_b, o_a, o_a.shape[:-1], lse_layout)
    *_, tokens, heads, _ = o_a.shape
    tokens_with_context = prefill_tokens_with_context
    if tokens_with_context is None:
        tokens_with_context = tokens
    elif isinstance(tokens_with_context, bool) or not isinstance(tokens_with_context, int):
        raise TypeError(
            f"prefill_tokens_with_context: got {tokens_with_context!r}, allowed is an int or None"
        )
    elif not 0 <= tokens_with_context <= tokens:
        raise ValueError(
            f"prefill_tokens_with_context: got {tokens_with_context}, allowed is 0 to {tokens}"
        )
    inputs = {"o_a": o_a, "lse_a": lse_a, "o_b": o_b, "lse_b": lse_b}
    if out is None:
        out = o_a.new_empty(o_a.shape, dtype=OUT_DTYPE)
    else:
        _check_o("out", out, o_a, OUT_DTYPE)
        _check_shape("out", out, tuple(o_a.shape))
        _check_apart("out", out, inputs, ("o_a", "o_b"))
    if not return_lse:
        if out_lse is not None:
            raise ValueError("out_lse: got a tensor, allowed without return_lse is None")
    elif out_lse is None:
        out_lse = lse_a.new_empty(lse_a.shape)
    else:
        _check_lse("out_lse", out_lse, o_a, o_a.shape[:-1], lse_layout)
        _check_apart("out_lse", out_lse, {**inputs, "out": out}, ("lse_a", "lse_b"))
    token, head = (-1, -2) if lse_layout == "ht" else (-2, -1)
    strides = [
        _strides("o_a", o_a, -3, -2),
        _strides("lse_a", lse_a, token, head),
        _strides("o_b", o_b, -3, -2),
        _strides("lse_b", lse_b, token, head),
        _strides("out", out, -3, -2),
        (0, 0, 0) if out_lse is None else _strides("out_lse", out_lse, token, head),
    ]
    num_sequences = o_a.shape[:-3].numel()
    if tokens_with_context == tokens and _is_one_sequence(strides, tokens):
        strides = [(0, batch if tokens == 1 else token, head) for batch, token, head in strides]
        tokens *= num_sequences
        num_sequences, tokens_with_context = 1, tokens
    tiles_a_sequence = triton.cdiv(tokens * heads, BLOCK_M.value)
    num_tiles = num_sequences * tiles_a_sequence
    if num_tiles == 0:
        return out, out_lse
    # A graph that torch compiles asks no device while it is traced.
    pdl = not torch.compiler.is_compiling() and _has_pdl(o_a.device)
    with torch.cuda.device(o_a.get_device()):
        _KERNEL[(num_tiles,)](
            o_a,
            lse_a,
            o_b,
            lse_b,
            out,
            out_lse,
            *chain.from_iterable(strides),
            tokens,
            heads,
            tiles_a_sequence,
            tokens_with_context,
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


_KERNEL = merge_state_d64_bf16_m32_w4_s1
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
