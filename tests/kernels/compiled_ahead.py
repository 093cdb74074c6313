"""Compile a kernel ahead, then let Triton look for the binary of a launch; print both hashes.

A process of its own, since Triton compiles nothing where it was told to interpret. The argument is
the kernel's name. The driver is made up: an H200 on which nothing is ever launched.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from attngen import finder, store
from attngen.compile import compile_kernel
from attngen.config import TARGETS
from attngen.variant import parse


class Driver:
    """What a launch asks of a driver before it has a binary."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Tensor:
    """A pointer to aligned memory."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 1024


def argument(name: str) -> Any:
    """As a launcher passes it for contiguous tensors of a head dim of 64, with odd lengths."""
    if name.endswith("_ptr"):
        if name == "causal_offset_ptr":
            return None
        return Tensor(torch.float32 if name == "lse_ptr" else torch.bfloat16)
    if name == "sm_scale":
        return 0.125
    return 4 * 64 if name.startswith("stride_") else 77


def hashes(name: str) -> tuple[str, str]:
    """Of the binary that is compiled ahead, and of the one that a launch wants."""
    ahead = compile_kernel(parse(name), TARGETS["sm_90"])
    driver.set_active(Driver())
    with TemporaryDirectory() as folder:
        store.write(parse(name), Path(folder))
        module = finder.load(name, [Path(folder)])
        kernel = getattr(module, name)
        launched = kernel.warmup(
            *map(argument, kernel.arg_names),
            grid=(1,),
            num_warps=module.NUM_WARPS,
            num_stages=module.NUM_STAGES,
            enable_fp_fusion=True,
        )
    return ahead.hash, launched.hash


if __name__ == "__main__":
    print(*hashes(sys.argv[1]))
