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

from attngen import interpret, store, winners
from attngen.buckets import Bucket
from attngen.device import machine
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


def find(
    spec: Spec,
    *,
    hopper: bool = False,
    device: torch.device | None = None,
    bucket: Bucket | None = None,
) -> ModuleType:
    """The built kernel for a spec: a tuned tile, else the default one, else any other.

    Args:
        spec: what is to be computed.
        hopper: may it be an sm90 kernel? Where none is tuned it comes before the portable ones.
        device: the GPU whose winners are looked at; none are without it.
        bucket: of the shape; without it the tile depends on spec and device alone.

    Raises:
        NotGenerated: where no tile of the spec is built.
    """
    backends = ("sm90", "triton") if hopper else ("triton",)
    for folder in store.search_path():
        names = store.names(folder, f"{spec.name}_")
        variants = [variant for name in names if (variant := parse(name)).spec == spec]
        built = {v.name: v for v in variants if v.config.backend in backends}
        if built:
            name = _preferred(spec, backends, built, _tuned(spec, device, bucket))
            return _load_file(name, folder / f"{name}.py")
    raise NotGenerated(
        f"{spec.name} is not built for any tile; build it with: "
        + _build_command("--op", spec.op, *spec.options)
    )


def _tuned(spec: Spec, device: torch.device | None, bucket: Bucket | None) -> list[str]:
    """Names of proven kernels of a spec on a GPU, the fastest first; none where nobody tuned."""
    if device is None or device.type != "cuda" or interpret.interpreting():
        return []
    index = torch.cuda.current_device() if device.index is None else device.index
    found = winners.find(machine(index))
    return [] if found is None else found.ranking(spec.op, spec.name, bucket)


def _preferred(
    spec: Spec, backends: tuple[str, ...], built: dict[str, Variant], tuned: list[str]
) -> str:
    """Which of the built kernels to take.

    Times rank kernels of all families, but a family that nobody timed is not thereby slow: where
    that is the first one built, its default stands.
    """
    ranked = [name for name in tuned if name in built]
    timed = {built[name].config.backend for name in ranked}
    first = next(b for b in backends if any(v.config.backend == b for v in built.values()))
    if first in timed:
        return ranked[0]
    default = Variant(spec, default_config(spec, first)).name
    return (
        default
        if default in built
        else next(name for name, variant in built.items() if variant.config.backend == first)
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
    """Is it the GPU that sm90 kernels are written for? AMD has chips that report 9.0 too."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) == (9, 0)


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
