"""Built kernels as modules: found by name or by spec in the folders that are looked in.

Nothing is rendered here and nothing falls back in silence: what is not built raises NotGenerated.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from attngen import interpret, store
from attngen.errors import NotGenerated
from attngen.ops import default_config
from attngen.spec import Spec
from attngen.variant import Variant, parse

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
"""The name that a spec has for a dtype."""


def load(name: str, folders: Iterable[Path] | None = None) -> ModuleType:
    """The module of a generated kernel, by its name.

    Args:
        name: such as "attention_fwd_d128_bf16_causal_m128_n64_w8_s2"; `attngen list` has them.
        folders: where to look; those of ATTNGEN_KERNELS and the package where they are not given.

    Raises:
        InvalidSpec: where the name is none.
        NotGenerated: where none of the folders has the kernel.
    """
    parse(name)
    for folder in store.search_path() if folders is None else folders:
        path = folder / f"{name}.py"
        if path.is_file():
            return _load_file(name, path)
    raise NotGenerated(f"{name} is not built; build it with: {_build_command(name)}")


def find(spec: Spec, *, hopper: bool = False) -> ModuleType:
    """The built kernel for a spec: its default tile where that is built, else any other.

    Args:
        spec: what is to be computed.
        hopper: may it be an sm90 kernel? One of them then comes before the portable ones.

    Raises:
        NotGenerated: where no tile of the spec is built.
    """
    backends = ("sm90", "triton") if hopper else ("triton",)
    for folder in store.search_path():
        variants = [
            variant for name in store.names(folder) if (variant := parse(name)).spec == spec
        ]
        for backend in backends:
            built = [variant for variant in variants if variant.config.backend == backend]
            if built:
                preferred = Variant(spec, default_config(spec, backend))
                name = (preferred if preferred in built else built[0]).name
                return _load_file(name, folder / f"{name}.py")
    raise NotGenerated(
        f"{spec.name} is not built for any tile; build it with: "
        + _build_command("--op", spec.op, *spec.options)
    )


def _build_command(*words: str) -> str:
    """The command that builds what is missing, into a folder that is looked in."""
    command = ["attngen", "build", *words]
    if not store.in_checkout():
        listed = store.search_path()[:-1]
        command += [
            "--out",
            str(listed[0]) if listed else f"DIR (and list DIR in {store.PATH_VARIABLE})",
        ]
    return " ".join(command)


def cannot_run(variant: Variant, device: str) -> str | None:
    """Why a kernel cannot run on a device, in words; None where it can.

    Args:
        variant: the kernel.
        device: "cuda", or "cpu" under Triton's interpreter.
    """
    if getattr(variant.spec, "out_fp8", False) and device != "cpu" and _lacks_fp8(device):
        return f"float8_e4m3fn needs compute capability 8.9; this is {torch.cuda.get_device_name()}"
    if variant.config.backend != "sm90":
        return None
    if device == "cpu":
        return "Gluon, which sm90 kernels are written in, does not run in Triton's interpreter"
    if not is_hopper(torch.device(device)):
        return f"sm90 kernels need compute capability 9.0; this is {torch.cuda.get_device_name()}"
    return None


def _lacks_fp8(device: str) -> bool:
    """Is it a GPU of NVIDIA that Triton cannot round to float8_e4m3fn on?"""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 9)


@cache
def is_hopper(device: torch.device) -> bool:
    """Is it the GPU that sm90 kernels are written for?"""
    return torch.cuda.get_device_capability(device) == (9, 0)


@cache
def _load_file(name: str, path: Path) -> ModuleType:
    if interpret.interpreting():
        interpret.repair()
    shipped = path.parent == store.generated()
    module_name = f"attngen.generated.{name}" if shipped else f"attngen_kernels.{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module
