"""The run-time face: operators on torch tensors that find a generated kernel and call it.

Nothing is rendered here and nothing falls back in silence: what is not built raises NotGenerated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attngen import interpret
from attngen.buckets import Bucket, bucket
from attngen.errors import InvalidSpec
from attngen.finder import DTYPES, find, is_hopper
from attngen.spec_attention import AttentionFwd

MOST_KERNELS = 4096
_EVERYWHERE = (-1, -1)
_kernels: dict[Any, ModuleType] = {}


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    causal_offset: int | torch.Tensor | None = None,
    window_size: Sequence[int] = _EVERYWHERE,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention over dense tensors: o = softmax(q k^T * sm_scale) v, by a generated kernel.

    The scores go through scale, softcap, ALiBi, bias and masks, in that order; the definition is
    `attngen.reference.attention`. Tensors are on one GPU (or on the CPU under TRITON_INTERPRET=1),
    with any strides and a contiguous last dimension. There is no backward. On a GPU that was tuned
    the tile, and with it a row's last bits, may change with the shape: docs/tuning.md.

    Args:
        q: [batch, seqlen_q, heads_q, head_dim], float16, bfloat16 or float32.
        k: [batch, seqlen_kv, heads_kv, head_dim], like q; heads_q is a multiple of heads_kv.
        v: [batch, seqlen_kv, heads_kv, head_dim_v], like q.
        causal: query i sees key j when j <= i + causal_offset.
        causal_offset: an int, or int32 or int64 [batch]; seqlen_kv - seqlen_q (bottom-right) where
            it is not given. It also places the queries for window_size and alibi_slopes.
        window_size: (left, right): keys seen before and after a query's own position; -1 is
            unbounded.
        sm_scale: any finite factor of q . k; 1 / sqrt(head_dim) where it is not given.
        softcap: from 2**-126 to less than 2**128; scores become softcap * tanh(score / softcap).
        sinks: floating [heads_q]: one more logit in the denominator, without a value.
        alibi_slopes: float32 [heads_q] or [batch, heads_q]; scores lose slope * distance.
        bias: floating, broadcasts to [batch, heads_q, seqlen_q, seqlen_kv].
        mask: bool, True where visible, broadcasts like bias.
        return_lse: also return the log-sum-exp.
        out: takes o, where it is given.

    Returns:
        o: [batch, seqlen_q, heads_q, head_dim_v], like q; 0 in rows that see no key.
        lse: with return_lse, [batch, heads_q, seqlen_q] float32, natural logarithm; -inf (or the
            sink) in rows that see no key.

    Raises:
        NotGenerated: where the kernel is not built; the message has the command that builds it.
        InvalidSpec: where no template can do this head dim or dtype.
        TypeError: for an argument of the wrong type, dtype or device.
        ValueError: for an argument of the wrong shape, strides or value.
    """
    if window_size is not _EVERYWHERE:
        window_size = window_of(window_size)
    windowed = window_size != _EVERYWHERE
    options: dict[str, Any] = {"sm_scale": sm_scale, "out": out}
    if windowed:
        options["window_size"] = window_size
    if softcap is not None:
        check_softcap(softcap)
        options["softcap"] = softcap
    if sinks is not None:
        options["sinks"] = sinks
    if alibi_slopes is not None:
        options["alibi_slopes"] = alibi_slopes
    if bias is not None:
        options["bias"] = bias
    if mask is not None:
        options["mask"] = mask
    if causal or windowed or alibi_slopes is not None:
        options["causal_offset"] = causal_offset
    switches = (
        *(causal, windowed, softcap is not None, alibi_slopes is not None),
        *(bias is not None, mask is not None, sinks is not None),
    )
    kernel = _kernel(q, k, v, out, switches, isinstance(causal_offset, torch.Tensor))
    o, lse = kernel.attention_fwd(q, k, v, **options)
    return (o, lse) if return_lse else o


def check_tensors(**tensors: torch.Tensor) -> None:
    """Hold q, k and v to tensors of four dimensions."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, allowed is a torch.Tensor")
        if tensor.dim() != 4:
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}, allowed is [batch, seqlen, heads, dim]"
            )


def window_of(window_size: Sequence[int]) -> tuple[int, int]:
    """(left, right), each -1 (unbounded) or more; raises a TypeError or ValueError for others."""
    values = tuple(window_size) if isinstance(window_size, Iterable) else ()
    if len(values) != 2 or any(isinstance(x, bool) or not isinstance(x, int) for x in values):
        raise TypeError(f"window_size: got {window_size!r}, allowed are two ints (left, right)")
    if min(values) < -1:
        raise ValueError(f"window_size: got {values}, allowed is -1 (unbounded) and up")
    return values


def check_number(name: str, value: float | None) -> None:
    """Raise a TypeError unless an option is None or a number of Python's."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{name}: got {type(value).__name__}, allowed is a number")


def check_softcap(softcap: float | None) -> None:
    """Hold a softcap to None or a number that float32 has as a normal one, or raise an error."""
    check_number("softcap", softcap)
    if softcap is not None and not 2.0**-126 <= softcap < 2.0**128:
        raise ValueError(f"softcap: got {softcap}, allowed is from 2**-126 to less than 2**128")


def _kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    switches: tuple[bool, ...],
    offsets: bool,
) -> ModuleType:
    """The module of the kernel for a call; `offsets`: is there a causal offset a sequence?

    Whatever the choice depends on is in the key, so that a call like an earlier one costs one
    look-up. While torch compiles a graph, sizes are symbols and there are no addresses.
    """
    if torch.compiler.is_compiling():
        return _look_up(q, k, v, out, switches, offsets, None)
    try:
        key: tuple[Any, ...] = (
            *(q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), switches, offsets),
            *(q.dtype, q.device, k.device, v.device),
            q.is_cuda and (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16,
        )
        if out is not None:
            key = (*key, out.shape, out.stride(), out.device, out.is_cuda and out.data_ptr() % 16)
    except (AttributeError, TypeError):
        # What is no tensor is refused by name in the look-up, or by the launcher.
        return _look_up(q, k, v, None, switches, offsets, None)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _look_up(q, k, v, out, switches, offsets, bucket)
        if len(_kernels) >= MOST_KERNELS:
            _kernels.clear()
        _kernels[key] = kernel
    return kernel


def _look_up(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    switches: tuple[bool, ...],
    offsets: bool,
    bucket_of: Callable[..., Bucket] | None,
) -> ModuleType:
    check_tensors(q=q, k=k, v=v)
    tensors = (q, k, v) if out is None else (q, k, v, out)
    return _found(
        *(q.shape[3], v.shape[3], q.dtype, *switches),
        hopper=_takes_bulk_copies(tensors) and not offsets,
        device=q.device,
        shape_bucket=bucket_of and bucket_of(q.shape[1], k.shape[1], q.shape[0] * q.shape[2]),
    )


@lru_cache(maxsize=1024)
def _found(
    head_dim: int,
    head_dim_v: int,
    dtype: torch.dtype,
    causal: bool,
    *features: bool,
    hopper: bool,
    device: torch.device,
    shape_bucket: Bucket | None,
) -> ModuleType:
    """The module of the built kernel for a spec, its preferred tile first."""
    if dtype not in DTYPES:
        allowed = ", ".join(str(d) for d in DTYPES)
        raise InvalidSpec(f"dtype: got {dtype}, allowed are {allowed}")
    window, softcap, alibi, bias, mask, sinks = features
    spec = AttentionFwd(
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        dtype=DTYPES[dtype],
        causal=causal,
        window=window,
        softcap=softcap,
        alibi=alibi,
        bias=bias,
        mask=mask,
        sinks=sinks,
    )
    return find(spec, hopper=hopper, device=device, bucket=shape_bucket)


def forget() -> None:
    """Look every kernel up anew, after kernels or winners were added."""
    _kernels.clear()
    _found.cache_clear()


def _takes_bulk_copies(tensors: Iterable[torch.Tensor]) -> bool:
    """May these be arguments of an sm90 kernel?

    They are on one Hopper GPU, have no dimension of size 0, and the engine that copies their tiles
    takes their addresses and strides, which are multiples of 16 bytes. While torch compiles a
    graph they have no addresses yet.
    """
    if interpret.interpreting() or torch.compiler.is_compiling():
        return False
    return all(
        tensor.is_cuda
        and is_hopper(tensor.device)
        and tensor.numel() > 0
        and tensor.data_ptr() % 16 == 0
        and all(
            size == 1 or stride * tensor.element_size() % 16 == 0
            for size, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
        )
        for tensor in tensors
    )
