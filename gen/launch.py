"""How a launcher calls a function of its module: what Triton has to know to compile it ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One of the usual calls, in which every stride but those named is a multiple of 16.

    Attributes:
        function: the kernel, by its name in the module.
        constants: arguments that are constants to the compiler, by parameter. `PDL` is replaced
            by what the target can.
        types: of arguments that are not of the types in `kernel_signature`, by parameter.
        options: the compiler's that are not the tile's, such as `num_warps`.
        early: is it launched while the kernel before it ends, where the target can?
    """

    function: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)
    early: bool = False


_UNITS = (
    *("stride_sinks_h", "stride_alibi_slopes_h", "stride_bias_n", "stride_mask_n", "stride_tp"),
    *("stride_lse_token", "stride_lse_a_token", "stride_lse_b_token", "stride_out_lse_token"),
    "stride_indptr",
)


def units(parameters: Iterable[str]) -> dict[str, Any]:
    """The strides among a kernel's parameters that are usually 1: a constant to Triton."""
    return {name: 1 for name in parameters if name in _UNITS}
