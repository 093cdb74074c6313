"""Compile a kernel ahead as tuning does, then call it on what tuning times it on.

A process of its own, since Triton compiles nothing where it was told to interpret. The argument is
the kernel's name; printed is, as JSON, which functions were compiled ahead, which the calls asked
for, and which of these were compiled anew. The GPU is made up: an H200 on which nothing is ever
launched, and whose tensors have no memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from attngen import compile as compiler
from attngen import finder, store
from attngen.config import TARGETS
from attngen.trials import TRIALS
from attngen.variant import Variant, parse


class Driver:
    """What a launch asks of a driver before it has a binary."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Generator(torch.Generator):
    """One of the CPU: tensors without memory have none."""

    def __new__(cls, device: str) -> Generator:
        return super().__new__(cls)


def _normal(*size: Any, generator: Any, **options: Any) -> torch.Tensor:
    return torch.empty(*size, **options)


def _permutation(n: int, generator: Any, **options: Any) -> torch.Tensor:
    return torch.empty(n, dtype=torch.int64, **options)


def calls(variant: Variant, folder: Path) -> None:
    """Call the kernel on every shape, up to where its binary is known."""
    store.write(variant, folder)
    module: Any = finder.load(variant.name, [folder])
    module._INTERPRETED = True  # any device will do
    module._has_pdl = lambda _: True
    compiled = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        compiled(self, *args, grid=grid, warmup=True, **options)

    processor = SimpleNamespace(multi_processor_count=132, L2_cache_size=50 << 20)
    trial = TRIALS[variant.spec.op]
    with (
        mock.patch.object(JITFunction, "run", run),
        mock.patch.object(torch, "randn", _normal),
        mock.patch.object(torch, "randperm", _permutation),
        mock.patch.object(torch, "Generator", Generator),
        mock.patch.object(torch.cuda, "get_device_properties", lambda _: processor),
        mock.patch.object(torch.cuda, "device", mock.MagicMock()),
    ):
        for shape in trial.shapes(variant.spec):
            arguments, options = trial.inputs(variant.spec, shape, "meta")
            getattr(module, variant.spec.op)(*arguments, **options)


def main(name: str) -> dict[str, list[str]]:
    """The functions that were compiled ahead, wanted by calls, and compiled anew for them."""
    found: list[tuple[str, bool]] = []

    def listen(*, src: Any, cache_hit: bool, **_: Any) -> None:
        found.append((src.fn.__name__, cache_hit))

    knobs.compilation.listener = listen
    variant = parse(name)
    compiler.compile_variant(variant, TARGETS["sm_90"])
    ahead = len(found)
    driver.set_active(Driver())
    with TemporaryDirectory() as folder:
        calls(variant, Path(folder))
    return {
        "ahead": [function for function, _ in found[:ahead]],
        "wanted": [function for function, _ in found[ahead:]],
        "anew": [function for function, hit in found[ahead:] if not hit],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
