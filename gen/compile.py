"""Compile a kernel for a named GPU, with no GPU at hand, and report what it takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from attngen.config import Target
from attngen.context import context
from attngen.errors import CannotCompile
from attngen.interpret import interpreting
from attngen.launch import Launch
from attngen.ops import wrong_target
from attngen.render import render
from attngen.variant import Variant


@dataclass(frozen=True)
class Resources:
    """What one kernel takes on one target.

    Attributes:
        variant: the kernel's name.
        target: the target's name.
        registers: registers a thread (vector registers on AMD).
        spills: bytes a thread spilled to local memory (registers spilled on AMD).
        shared: bytes of shared memory a program.
        shared_limit: bytes the target has for it.
        serialised: did the assembler have to wait after every matrix product of a warpgroup, so
            that none overlaps another? (ptxas C7510 and up; it costs about a tenth.)
    """

    variant: str
    target: str
    registers: int
    spills: int
    shared: int
    shared_limit: int
    serialised: bool = False

    @property
    def failed(self) -> bool:
        """Does it spill, serialise its products, or want more shared memory than there is?"""
        return self.spills > 0 or self.serialised or self.shared > self.shared_limit

    def as_dict(self) -> dict[str, Any]:
        """The report for a program to read."""
        return {**asdict(self), "failed": self.failed}

    def __str__(self) -> str:
        """One line."""
        return (
            f"{'FAIL' if self.failed else 'ok  '} {self.variant:<50} {self.target:<7}"
            f" {self.registers:3} registers, {self.spills} spilled,"
            f" {self.shared} of {self.shared_limit} bytes shared"
            f"{', products serialised' if self.serialised else ''}"
        )


@dataclass(frozen=True)
class Refusal:
    """A kernel that is not for a target, or that its compiler refused, in the compiler's words."""

    variant: str
    target: str
    reason: str
    failed: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The report for a program to read."""
        return asdict(self)

    def __str__(self) -> str:
        """One line."""
        verdict = "FAIL" if self.failed else "skip"
        return f"{verdict} {self.variant:<50} {self.target:<7} {self.reason}"


def reports(
    variants: Iterable[Variant], targets: Iterable[Target], *, skip: bool = False
) -> Iterator[Resources | Refusal]:
    """Compile every variant for every target, in as many processes as there are cores.

    With `skip` a kernel that is not for a target is passed over, in words; else it is a failure.
    """
    # Where one of these is missing, say so before any process starts: a kernel imports both.
    import torch  # noqa: F401
    import triton  # noqa: F401

    if interpreting():
        raise CannotCompile("TRITON_INTERPRET is set: Triton compiles nothing; unset it")

    targets = list(targets)
    pairs = [(variant, target) for variant in variants for target in targets]
    for variant, target in pairs:
        if reason := wrong_target(variant.spec, variant.config, target):
            yield Refusal(variant.name, target.name, reason, failed=not skip)
    pairs = [pair for pair in pairs if not wrong_target(pair[0].spec, pair[0].config, pair[1])]
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=silence) as pool:
        yield from pool.map(report, pairs)


def silence() -> None:
    """The compilers write whole programs to standard error where they fail; the reason is kept."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def report(pair: tuple[Variant, Target]) -> Resources | Refusal:
    """What one pair takes, or why it is refused."""
    variant, target = pair
    try:
        return compile_variant(variant, target)
    except CannotCompile as error:
        return Refusal(variant.name, target.name, str(error))


def load_text(name: str, text: str, folder: str) -> types.ModuleType:
    """The module that `text` defines; Triton reads a kernel's source, so it is put in a file."""
    import importlib.util

    path = Path(folder) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compile_variant(variant: Variant, target: Target, text: str | None = None) -> Resources:
    """Compile `variant` (or `text`, a changed rendering of it) and read its resources.

    Raises:
        CannotCompile: where the compiler refuses; the message is the compiler's.
    """
    names = context(variant)
    kernels = [compile_kernel(variant, target, text, launch) for launch in names["launches"]]
    serialised = False
    if target.backend == "hip":
        counts = [
            [_amd_count(kernel.asm["amdgcn"], f".vgpr_{key}count") for key in ("", "spill_")]
            for kernel in kernels
        ]
        registers, spills = map(max, zip(*counts, strict=True))
    else:
        told = [_ptxas_report(kernel.asm["ptx"]) for kernel in kernels]
        registers, spills, serialised = map(max, zip(*told, strict=True))
    shared = max(kernel.metadata.shared for kernel in kernels)
    return Resources(
        variant.name, target.name, registers, spills, shared, target.shared_memory, serialised
    )


def compile_kernel(
    variant: Variant,
    target: Target,
    text: str | None = None,
    launch: Launch | None = None,
) -> Any:
    """Triton's compiled kernel of a variant for a target; `.asm` holds what each pass made.

    `launch` is one of the launcher's usual calls, the first where it is not given.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    names = context(variant)
    launch = launch or names["launches"][0]
    constants = dict(launch.constants)
    if "PDL" in constants:
        constants["PDL"] = target.pdl
    if reason := wrong_target(variant.spec, variant.config, target):
        raise CannotCompile(reason)
    with tempfile.TemporaryDirectory() as folder:
        module = load_text(variant.name, text or render(variant), folder)
        kernel = getattr(module, launch.function)
        known = {
            **names["kernel_signature"],
            **launch.types,
            **dict.fromkeys(constants, "constexpr"),
        }
        signature = {name: _type(known[name]) for name in kernel.arg_names}
        parameters = list(signature)
        fixed = {
            (parameters.index(name),): value
            for name, value in constants.items()
            if name in signature
        }
        multiples = names.get("multiples_of_16", ())
        aligned = {
            (parameters.index(name),): [["tt.divisibility", 16]]
            for name, type_ in signature.items()
            if type_ != "constexpr"
            and (type_.startswith("*") or name.startswith("stride_") or name in multiples)
        }
        options: dict[str, Any] = {
            "num_warps": variant.config.num_warps,
            "enable_fp_fusion": True,
        }
        if variant.config.backend == "sm90":
            from triton.experimental.gluon._runtime import GluonASTSource as Source

            options["maxnreg"] = names["registers"]
        else:
            from triton.compiler import ASTSource as Source

            options["num_stages"] = variant.config.num_stages
            if launch.early and target.pdl:
                options["launch_pdl"] = True
        options |= launch.options
        source = Source(kernel, signature, fixed, aligned)
        gpu = GPUTarget(target.backend, target.arch, target.warp_size)
        try:
            return triton.compile(source, target=gpu, options=options)
        except Exception as error:
            raise CannotCompile(str(error).strip()) from error


def _type(type_: str) -> str:
    """Triton's type of a kernel's parameter; a descriptor's has a layout, which Triton spells."""
    if not type_.startswith("tensordesc"):
        return type_
    from triton.experimental.gluon import language as gl

    box = [int(n) for n in type_[type_.index("[") + 1 : type_.index("]")].split(",")]
    element = gl.bfloat16 if "bf16" in type_ else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for(box, element)
    return f"{type_[:-1]},{layout!r}>"


def _ptxas_report(ptx: str) -> tuple[int, int, bool]:
    """Registers a thread, bytes spilled and whether products are serialised, as ptxas tells it."""
    import triton.backends.nvidia

    arch = re.search(r"^\.target (sm_\w+)", ptx, flags=re.MULTILINE)
    assert arch is not None
    binaries = Path(triton.backends.nvidia.__file__).parent / "bin"
    # Triton 3.6 ships an assembler of its own for Blackwell, and 3.9 assembles all with that one:
    # the other does not know its version of PTX.
    version = re.search(r"^\.version (\d+)\.", ptx, flags=re.MULTILINE)
    new = arch[1].startswith(("sm_10", "sm_12")) or (version is not None and int(version[1]) > 8)
    ptxas = binaries / "ptxas-blackwell"
    if not new or not ptxas.exists():
        ptxas = binaries / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        command: list[str | Path] = [
            ptxas,
            "-v",
            f"--gpu-name={arch[1]}",
            source,
            "-o",
            Path(folder) / "kernel.cubin",
        ]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.findall(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    serialised = "wgmma.mma_async instructions are serialized" in log
    return max(map(int, registers)), max(map(int, spills), default=0), serialised


def _amd_count(assembly: str, key: str) -> int:
    return max(map(int, re.findall(rf"{re.escape(key)}:\s*(\d+)", assembly)), default=0)
