"""A variant is a spec and a tile; its name is a grammar, and `parse` is the exact inverse.

attention_fwd_d<head_dim>[_dv<head_dim_v>]_<dtype>[_<feature>...]_m<BLOCK_M>_n<BLOCK_N>
    _w<num_warps>_s<num_stages>[_<backend>]
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from attngen.config import BACKENDS, TileConfig, why_not
from attngen.errors import InvalidSpec
from attngen.spec import ATTENTION_FEATURES, DTYPES, OPS, AttentionFwd


@dataclass(frozen=True)
class Variant:
    """One kernel: what it computes and how.

    Raises:
        InvalidSpec: where the tile cannot serve the spec.
    """

    spec: AttentionFwd
    config: TileConfig

    def __post_init__(self) -> None:
        """Hold the pair to `why_not`."""
        reason = why_not(self.spec, self.config)
        if reason:
            raise InvalidSpec(reason)

    @property
    def name(self) -> str:
        """File, module, kernel and profiler name."""
        return "_".join((spec_name(self.spec), *_config_tokens(self.config)))


def spec_name(spec: AttentionFwd) -> str:
    """The part of a name that says what is computed; every tile of a spec begins with it."""
    tokens = [spec.op, f"d{spec.head_dim}"]
    if spec.head_dim_v != spec.head_dim:
        tokens.append(f"dv{spec.head_dim_v}")
    return "_".join((*tokens, spec.dtype, *spec.switched_on))


def _config_tokens(config: TileConfig) -> list[str]:
    tokens = [
        f"m{config.block_m}",
        f"n{config.block_n}",
        f"w{config.num_warps}",
        f"s{config.num_stages}",
    ]
    if config.backend != "triton":
        tokens.append(config.backend)
    return tokens


_NUMBER = "[1-9][0-9]*"
_GRAMMAR = re.compile(
    f"(?P<op>{'|'.join(OPS)})"
    f"_d(?P<head_dim>{_NUMBER})(?:_dv(?P<head_dim_v>{_NUMBER}))?"
    f"_(?P<dtype>{'|'.join(DTYPES)})"
    + "".join(f"(?P<{feature.name}>_{feature.name})?" for feature in ATTENTION_FEATURES)
    + f"_m(?P<block_m>{_NUMBER})_n(?P<block_n>{_NUMBER})"
    f"_w(?P<num_warps>{_NUMBER})_s(?P<num_stages>{_NUMBER})"
    f"(?:_(?P<backend>{'|'.join(b for b in BACKENDS if b != 'triton') or '(?!)'}))?",
)


def parse(name: str) -> Variant:
    """The variant that has this name.

    Raises:
        InvalidSpec: where it is not a name, or names what no template can do.
    """
    match = _GRAMMAR.fullmatch(name)
    if match is None:
        raise InvalidSpec(
            f"name: got {name!r}, allowed is <op>_d<head_dim>[_dv<n>]_<dtype>[_<feature>...]"
            "_m<BLOCK_M>_n<BLOCK_N>_w<num_warps>_s<num_stages>, such as"
            " attention_fwd_d128_bf16_causal_m128_n64_w8_s2"
        )
    part = match.groupdict()
    spec = OPS[part["op"]](
        head_dim=int(part["head_dim"]),
        head_dim_v=int(part["head_dim_v"] or 0),
        dtype=part["dtype"],
        **{f.name: part[f.name] is not None for f in ATTENTION_FEATURES},
    )
    config = TileConfig(
        block_m=int(part["block_m"]),
        block_n=int(part["block_n"]),
        num_warps=int(part["num_warps"]),
        num_stages=int(part["num_stages"]),
        backend=part["backend"] or "triton",
    )
    variant = Variant(spec, config)
    if variant.name != name:
        raise InvalidSpec(f"name: got {name!r}, its one spelling is {variant.name!r}")
    return variant
