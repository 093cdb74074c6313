"""A variant is a spec and a tile; its name is a grammar, and `parse` is the exact inverse.

<op>[_<size>...]_<dtype>[_<feature>...][_m<BLOCK_M>][_n<BLOCK_N>]_w<num_warps>_s<num_stages>
    [_<backend>]

A size is a letter and a number, such as d128 for a head dim; an operator whose tiles have no
BLOCK_M or no BLOCK_N has no token for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from attngen.config import BACKENDS, TileConfig
from attngen.errors import InvalidSpec
from attngen.ops import OPS, why_not
from attngen.spec import DTYPES


@dataclass(frozen=True)
class Variant:
    """One kernel: what it computes and how.

    Attributes:
        spec: an instance of the operator's class in OPS.
        config: a tile that can serve it.

    Raises:
        InvalidSpec: where the tile cannot serve the spec.
    """

    spec: Any
    config: TileConfig

    def __post_init__(self) -> None:
        """Hold the pair to `why_not`."""
        reason = why_not(self.spec, self.config)
        if reason:
            raise InvalidSpec(reason)

    @property
    def name(self) -> str:
        """File, module, kernel and profiler name."""
        return "_".join((self.spec.name, *_config_tokens(self.config)))


_BLOCKS = {"block_m": "m", "block_n": "n"}
_LAUNCH = {"num_warps": "w", "num_stages": "s"}


def _config_tokens(config: TileConfig) -> list[str]:
    blocks = {name: letter for name, letter in _BLOCKS.items() if getattr(config, name)}
    tokens = [f"{letter}{getattr(config, name)}" for name, letter in (blocks | _LAUNCH).items()]
    return tokens if config.backend == "triton" else [*tokens, config.backend]


@cache
def _grammar(op: str) -> re.Pattern[str]:
    spec = OPS[op].spec
    sizes = "".join(
        _number(letter, size, optional=size not in spec.needed_sizes())
        for size, letter in spec.sizes.items()
    )
    features = "".join(f"(?P<{feature.name}>_{feature.name})?" for feature in spec.features)
    blocks = "".join(_number(letter, name, optional=True) for name, letter in _BLOCKS.items())
    launch = "".join(_number(letter, name) for name, letter in _LAUNCH.items())
    backends = "|".join(backend for backend in BACKENDS if backend != "triton")
    return re.compile(
        f"{op}{sizes}_(?P<dtype>{'|'.join(DTYPES)}){features}{blocks}{launch}"
        f"(?:_(?P<backend>{backends}))?"
    )


def _number(letter: str, name: str, *, optional: bool = False) -> str:
    return f"(?:_{letter}(?P<{name}>[1-9][0-9]*)){'?' if optional else ''}"


def parse(name: str) -> Variant:
    """The variant that has this name.

    Raises:
        InvalidSpec: where it is not a name, or names what no template can do.
    """
    matches = {op: match for op in OPS if (match := _grammar(op).fullmatch(name))}
    if not matches:
        raise InvalidSpec(
            f"name: got {name!r}, allowed is <op>[_<size>...]_<dtype>[_<feature>...][_m<BLOCK_M>]"
            "[_n<BLOCK_N>]_w<num_warps>_s<num_stages>, such as"
            " attention_fwd_d128_bf16_causal_m128_n64_w8_s2"
        )
    ((op, match),) = matches.items()
    part, spec_class = match.groupdict(), OPS[op].spec
    sizes = {size: int(part[size]) for size in spec_class.sizes if part[size]}
    features = {feature.name: part[feature.name] is not None for feature in spec_class.features}
    spec = spec_class(dtype=part["dtype"], **sizes, **features)
    tile = {key: int(part[key] or 0) for key in _BLOCKS | _LAUNCH}
    variant = Variant(spec, TileConfig(**tile, backend=part["backend"] or "triton"))
    if variant.name != name:
        raise InvalidSpec(f"name: got {name!r}, its one spelling is {variant.name!r}")
    return variant
