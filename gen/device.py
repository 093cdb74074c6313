"""The GPU at hand."""

from __future__ import annotations

from functools import cache

import torch

from attngen.errors import NoGPU
from attngen.interpret import interpreting
from attngen.machine import Machine


@cache
def machine(index: int) -> Machine:
    """The GPU with an index, and the Triton that compiles for it."""
    import triton

    properties = torch.cuda.get_device_properties(index)
    capability = f"{properties.major}.{properties.minor}"
    if torch.version.hip is not None:
        capability = properties.gcnArchName.split(":")[0]
    limits = triton.runtime.driver.active.utils.get_device_properties(index)
    return Machine(properties.name, capability, int(limits["max_shared_mem"]), triton.__version__)


def require_gpu(what: str) -> None:
    """Refuse to time on a machine that has nothing to time on.

    Args:
        what: the command or option that times, as the message begins.

    Raises:
        NoGPU: where there is no GPU, or Triton was told to interpret.
    """
    if not torch.cuda.is_available() or interpreting():
        raise NoGPU(
            f"{what} times kernels on a GPU, and there is none that torch can use"
            " (or TRITON_INTERPRET is set)"
        )


def machine_to_tune() -> Machine:
    """The current GPU.

    Raises:
        NoGPU: where there is none, or Triton was told to interpret.
    """
    require_gpu("tune")
    return machine(torch.cuda.current_device())
