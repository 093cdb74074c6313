"""Repairs to Triton's interpreter, so that a run on a CPU tells about the run on a GPU.

Triton 3.6 to 3.9 multiply the raw bit patterns of bfloat16 operands and truncate on the way to
bfloat16; on the way to float8_e4m3fn they lose carries and NaN; they fill a masked load that names
no `other` with zeros, where a GPU leaves anything; they drop an `other` of 0 from a masked load of
a scalar; they take matrix products that are too small to compile, and any address
(`attngen.bounds`). `repair()` decodes the operands, rounds to nearest even, fills with NaN, keeps
the 0 and refuses.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from attngen import bounds
from attngen.errors import NoGPU

SMALLEST_DOT = 16
"""Fewest rows, columns or terms of a product that every target compiles (NVIDIA, AMD)."""


def interpreting() -> bool:
    """Was Triton told to interpret, by TRITON_INTERPRET=1 set before it was imported?"""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes")


def choose_device(mode: str | None) -> str:
    """The device that kernels are verified on, "cuda" or "cpu", with the interpreter made ready.

    Args:
        mode: None for the GPU, "always" for the interpreter, "auto" for it where there is no GPU.

    Raises:
        NoGPU: where mode is None and there is none.
    """
    import torch

    gpu = torch.cuda.is_available()
    if mode is None and not gpu and not interpreting():
        raise NoGPU(
            "there is no GPU that torch can use; on the CPU, in Triton's interpreter: --interpret"
        )
    if mode == "always" or (mode == "auto" and not gpu) or interpreting():
        os.environ["TRITON_INTERPRET"] = "1"
        repair()
        return "cpu"
    return "cuda"


def round_to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 [...] to the bits of the nearest bfloat16, ties to even; uint16 [...]."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(x), quiet_nan, rounded).astype(np.uint16)


def decode_bf16(bits: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, uint16 [...], to float32 [...]."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_fp8(x: np.ndarray) -> np.ndarray:
    """float32 [...] to the bits of the nearest float8_e4m3fn, NaN beyond 464; uint8 [...].

    Torch saturates there, and so do some GPUs: a kernel that leaves it to them is to show.
    """
    import torch

    within = np.where(np.abs(x) > 464.0, np.float32(np.nan), x).astype(np.float32)
    rounded = torch.from_numpy(within).to(torch.float8_e4m3fn)
    bits: np.ndarray = rounded.view(torch.uint8).numpy()
    return bits


def repair() -> None:
    """Mend Triton's interpreter in this process; a second call changes nothing."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    if getattr(builder, "repaired_by_attngen", False):
        return
    bounds.guard(interpreter)
    handle = interpreter.TensorHandle
    original_cast = builder.cast_impl
    original_load = builder.create_masked_load

    def cast(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.bfloat16:
            decoded = handle(decode_bf16(src.data), tl.float32)
            return decoded if target == tl.float32 else original_cast(self, decoded, dst_type)
        if target == tl.bfloat16:
            with np.errstate(over="ignore"):
                return handle(round_to_bf16(src.data.astype(np.float32)), tl.bfloat16)
        if target == tl.float8e4nv and source == tl.float32:
            return handle(round_to_fp8(src.data), tl.float8e4nv)
        with np.errstate(over="ignore"):
            return original_cast(self, src, dst_type)

    def float_cast(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if {tl.bfloat16, tl.float8e4nv} & {src.dtype.scalar, dst_type.scalar}:
            return cast(self, src, dst_type)
        return original_float_cast(self, src, dst_type, rounding_mode)

    original_float_cast = builder.create_fp_to_fp

    original_semantic = TritonSemantic._load_legacy
    other_is_given = False

    def semantic_load(self: Any, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        # It goes on to ask whether `other` is true, which in the interpreter a scalar 0 is not.
        nonlocal other_is_given
        other_is_given = other is not None
        return original_semantic(self, ptr, mask, other, *rest)

    def masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        element = ptrs.get_element_ty()
        if other is None and other_is_given:
            zero = np.zeros(ptrs.data.shape, dtype=interpreter._get_np_dtype(element))
            other = handle(zero, element)
        elif other is None:
            fill = np.full(ptrs.data.shape, 0xA5, dtype=np.uint8)
            if element.is_fp8():
                # The interpreter keeps their bits: NaN in e5m2 and in e4m3.
                other = handle(np.full_like(fill, 0x7F), element)
            elif element.is_floating():
                garbage = np.full(ptrs.data.shape, np.nan, dtype=np.float32)
                other = cast(self, handle(garbage, tl.float32), element)
            else:
                other = handle(fill.astype(interpreter._get_np_dtype(element)), element)
        return original_load(self, ptrs, mask, other, *rest, **options)

    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        smallest = min(*a.data.shape[-2:], *b.data.shape[-2:])
        if smallest < SMALLEST_DOT:
            raise ValueError(f"a product with {smallest} rows, columns or terms does not compile")
        operands = [
            decode_bf16(x.data) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b)
        ]
        with np.errstate(invalid="ignore", over="ignore"):
            product = np.matmul(*(x.astype(np.float32) for x in operands), dtype=np.float32)
            return handle(product + d.data, d.dtype.scalar)

    def binary(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if lhs.dtype.scalar == tl.bfloat16:
            wide = op(decode_bf16(lhs.data), decode_bf16(rhs.data))
            if wide.dtype == np.bool_:
                return handle(wide, tl.int1)
            return handle(round_to_bf16(wide), tl.bfloat16)
        # IEEE arithmetic: infinities and NaN are values here, not warnings.
        with np.errstate(all="ignore"):
            return original_binary(self, lhs, rhs, op)

    def unary(self: Any, arg: Any, op: Any) -> Any:
        with np.errstate(all="ignore"):
            return original_unary(self, arg, op)

    def get_bf16(self: Any, value: float) -> Any:
        return handle(round_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    def launch(self: Any, *args: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            # Loop bounds are arrays of one element there, which numpy frowns upon.
            warnings.filterwarnings("ignore", "Conversion of an array with ndim > 0")
            # The largest of nothing but NaN is NaN, on a GPU too.
            warnings.filterwarnings("ignore", "All-NaN slice encountered")
            return original_launch(self, *args, **options)

    original_launch = interpreter.GridExecutor.__call__
    interpreter.GridExecutor.__call__ = launch
    original_binary = builder.binary_op
    original_unary = builder.unary_op
    builder.cast_impl = cast
    builder.create_fp_to_fp = float_cast
    builder.create_masked_load = masked_load
    TritonSemantic._load_legacy = semantic_load
    builder.create_dot = dot
    builder.binary_op = binary
    builder.unary_op = unary
    builder.get_bf16 = get_bf16
    builder.repaired_by_attngen = True
