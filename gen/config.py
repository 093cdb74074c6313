"""How a kernel computes: tile sizes, and the GPUs they are meant for."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
BACKENDS = ("triton", "sm90")
"""The families of templates: "triton" runs everywhere, "sm90" is Gluon for Hopper alone."""


@dataclass(frozen=True)
class Target:
    """A GPU to compile for.

    Attributes:
        name: as on the command line, e.g. "sm_90" or "gfx942".
        backend: Triton's name for the compiler, "cuda" or "hip".
        arch: compute capability times ten for "cuda", the ISA's name for "hip".
        warp_size: threads a warp.
        shared_memory: bytes one program may use.
        fp8: does Triton round to float8_e4m3fn there?
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_memory: int
    fp8: bool = True

    @property
    def pdl(self) -> bool:
        """Can a kernel be launched while the one before it ends (programmatic dependent launch)?"""
        return isinstance(self.arch, int) and self.arch >= 90


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        # Shared memory a block: CUDA C++ Programming Guide, "Technical Specifications per
        # Compute Capability"; AMD CDNA3 ISA, local data share.
        Target("sm_80", "cuda", 80, 32, 166_912, fp8=False),
        Target("sm_86", "cuda", 86, 32, 101_376, fp8=False),
        Target("sm_89", "cuda", 89, 32, 101_376),
        Target("sm_90", "cuda", 90, 32, 232_448),
        Target("sm_100", "cuda", 100, 32, 232_448),
        Target("sm_120", "cuda", 120, 32, 101_376),
        Target("gfx942", "hip", "gfx942", 64, 65_536),
    )
}


@dataclass(frozen=True, kw_only=True)
class TileConfig:
    """The schedule of one kernel.

    Attributes:
        block_m: rows a program (sm90: a tile, 64 for each warpgroup).
        block_n: keys a step of the loop; 0 where there are no keys.
        num_warps: warps a program (sm90: a warpgroup, always 4).
        num_stages: depth of the software pipeline that loads k and v ahead.
        backend: the family of templates, "triton" or "sm90".
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    backend: str = "triton"


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def padded(head_dim: int) -> int:
    """Columns of the tile that holds `head_dim`: a power of two that a matrix product takes."""
    return max(16, next_power_of_2(head_dim))
