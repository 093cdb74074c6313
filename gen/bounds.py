"""Triton's interpreter, made to refuse an address outside the tensors that a kernel was given.

Unguarded, it reads and writes whatever the address names: a wrong kernel then takes its process
down, or a later one that has nothing to do with it. A GPU hides the same fault in its padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


class OutOfBounds(IndexError):
    """A kernel read or wrote where none of its tensors has an element."""


@dataclass(frozen=True)
class Extents:
    """The memory of some tensors, from the first element to the last of each.

    Attributes:
        starts: their first bytes, [n].
        ends: one past their last bytes, [n].
    """

    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, arguments: Iterable[Any]) -> Extents:
        """The memory of every tensor among the arguments of a launch, descriptors' too."""
        spans = [_span(tensor) for tensor in _tensors(arguments) if 0 not in tensor.shape]
        starts, ends = np.array(spans, dtype=np.uint64).reshape(-1, 2).T
        return cls(starts, ends)

    def hold(self, doing: str, pointers: np.ndarray, itemsize: int, mask: np.ndarray) -> None:
        """Raise unless the addresses that the mask lets through all lie in one of the tensors.

        Args:
            doing: "load", "store" or "atomic", for the message.
            pointers: addresses in bytes, uint64 [...].
            itemsize: bytes at each of them.
            mask: [...], broadcast against the addresses; Triton's is of bool or of integers.

        Raises:
            OutOfBounds: with how many addresses the tensor that most of them are in does not have.
        """
        chosen = np.broadcast_to(mask, pointers.shape).astype(bool)
        wanted = np.asarray(pointers, dtype=np.uint64)[chosen]
        if wanted.size == 0:
            return
        first, last = wanted.min(), wanted.max()
        # No sum of addresses here: one that wrapped below 0 is near 2**64.
        inside = (self.starts <= first) & (last < self.ends) & (self.ends - last >= itemsize)
        if not inside.any():
            raise OutOfBounds(f"{doing}: {self._outside(wanted)}")

    def _outside(self, wanted: np.ndarray) -> str:
        spans = zip(self.starts, self.ends, strict=True)
        held = [((start <= wanted) & (wanted < end)).sum() for start, end in spans]
        missing = wanted.size - max(held, default=0)
        return f"{missing} of {wanted.size} addresses lie outside the tensor"


def _span(tensor: Any) -> tuple[int, int]:
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _tensors(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _tensors(argument)
        elif hasattr(argument, "block_shape"):
            yield argument.base
        elif hasattr(argument, "data_ptr"):
            yield argument


def guard(interpreter: Any) -> None:
    """Have every access of `triton.runtime.interpreter` held to the launch's tensors."""
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    place, load, store = (
        executor._init_args_hst,
        builder.create_masked_load,
        builder.create_masked_store,
    )
    add, exchange = builder.create_atomic_rmw, builder.create_atomic_cas
    extents = Extents.of(())

    def placed(self: Any, args: Any, kwargs: Any) -> Any:
        nonlocal extents
        hosted = place(self, args, kwargs)
        extents = Extents.of((*hosted[0], *hosted[1].values()))
        return hosted

    def itemsize(pointers: Any) -> int:
        return int(np.dtype(interpreter._get_np_dtype(pointers.get_element_ty())).itemsize)

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        extents.hold("load", pointers.data, itemsize(pointers), mask.data)
        return load(self, pointers, mask, *rest, **options)

    def masked_store(
        self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any
    ) -> Any:
        extents.hold("store", pointers.data, itemsize(pointers), mask.data)
        return store(self, pointers, value, mask, *rest, **options)

    def atomic_rmw(self: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        extents.hold("atomic", pointers.data, itemsize(pointers), mask.data)
        return add(self, op, pointers, value, mask, *rest)

    def atomic_cas(self: Any, pointers: Any, *rest: Any) -> Any:
        extents.hold("atomic", pointers.data, itemsize(pointers), np.array(True))
        return exchange(self, pointers, *rest)

    executor._init_args_hst = placed
    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
