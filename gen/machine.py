"""A GPU in words and numbers, without torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attngen.config import Target


@dataclass(frozen=True)
class Machine:
    """A GPU and its compiler: what tuned tiles hold for.

    Attributes:
        device: the GPU's name, as its driver has it.
        capability: "9.0" and the like; on AMD the instruction set, such as "gfx942".
        shared_memory: bytes that one program may use.
        triton: the version of Triton that compiled the kernels.
    """

    device: str
    capability: str
    shared_memory: int
    triton: str

    @property
    def target_name(self) -> str:
        """The name in TARGETS: "sm_90" of "9.0", an AMD instruction set as it is."""
        digits = re.fullmatch(r"([0-9]+)\.([0-9]+)", self.capability)
        return f"sm_{digits[1]}{digits[2]}" if digits else self.capability

    @property
    def target(self) -> Target:
        """What to compile for, with the shared memory that this GPU has."""
        name = self.target_name
        if name.startswith("sm_"):
            return Target(name, "cuda", int(name.removeprefix("sm_")), 32, self.shared_memory)
        # gfx9 is CDNA and its kin, with waves of 64; from gfx10 on it is RDNA.
        return Target(name, "hip", name, 64 if name.startswith("gfx9") else 32, self.shared_memory)

    @property
    def slug(self) -> str:
        """The name of the GPU's file, such as "nvidia-h200"."""
        return re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-")
