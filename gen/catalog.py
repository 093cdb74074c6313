"""The kernels that generated/ commits: what a plain `attngen build` builds."""

from __future__ import annotations

from collections.abc import Iterator

from attngen.config import BACKENDS
from attngen.ops import default_config, why_no_tile
from attngen.spec import DTYPES
from attngen.spec_attention import (
    AttentionDecode,
    AttentionFwd,
    AttentionPaged,
    AttentionVarlen,
)
from attngen.variant import Variant

HEAD_DIMS = (32, 64, 96, 128, 256)
LAYOUTS = (AttentionVarlen, AttentionPaged)


def specs() -> Iterator[AttentionFwd]:
    """Every head dim in every dtype, causal and not; each further feature once; other layouts."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for causal in (False, True):
                yield AttentionFwd(head_dim=head_dim, dtype=dtype, causal=causal)
    for feature in AttentionFwd.features:
        if feature.name != "causal":
            yield AttentionFwd(head_dim=128, dtype="bf16", causal=True, **{feature.name: True})
    for layout in LAYOUTS:
        for head_dim in (64, 128):
            for dtype in ("fp16", "bf16"):
                yield layout(head_dim=head_dim, dtype=dtype, causal=True)


def decode_specs() -> Iterator[AttentionDecode]:
    """The usual head dims in every dtype; pages, and each further feature once with pages."""
    for head_dim in (64, 128, 256):
        for dtype in DTYPES:
            yield AttentionDecode(head_dim=head_dim, dtype=dtype)
    for head_dim in (64, 128):
        for dtype in ("fp16", "bf16"):
            yield AttentionDecode(head_dim=head_dim, dtype=dtype, paged=True)
    for feature in AttentionDecode.features:
        if feature.name != "paged":
            yield AttentionDecode(head_dim=128, dtype="bf16", paged=True, **{feature.name: True})


def catalog() -> dict[str, Variant]:
    """The committed variants by name, family by family, in the order of `specs`."""
    variants = [
        Variant(spec, default_config(spec, backend))
        for each in (specs, decode_specs)
        for backend in BACKENDS
        for spec in each()
        if why_no_tile(spec, backend) is None
    ]
    return {variant.name: variant for variant in variants}
