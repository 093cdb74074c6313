"""The kernels that generated/ commits: what a plain `attngen build` builds."""

from __future__ import annotations

from collections.abc import Iterator

from attngen.config import BACKENDS
from attngen.ops import default_config, why_no_tile
from attngen.spec import DTYPES, Spec
from attngen.spec_attention import (
    AttentionDecode,
    AttentionFwd,
    AttentionPaged,
    AttentionVarlen,
)
from attngen.spec_merge import MergeState, MergeStates
from attngen.spec_softmax import Softmax, SoftmaxTopk
from attngen.tiles_decode import wide_config
from attngen.variant import Variant

HEAD_DIMS = (32, 64, 96, 128, 256)
MERGE_HEAD_DIMS = (64, 128, 256)
LAYOUTS = (AttentionVarlen, AttentionPaged)
SINGLE_COLUMNS = tuple(2**i for i in range(7, 16))
LONG_COLUMNS = 262144


def specs() -> Iterator[Spec]:
    """The committed specs, operator by operator."""
    yield from _attention_specs()
    yield from _decode_specs()
    yield from _merge_specs()
    yield from _softmax_specs()


def _attention_specs() -> Iterator[AttentionFwd]:
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
                for causal in (False, True):
                    yield layout(head_dim=head_dim, dtype=dtype, causal=causal)


def _decode_specs() -> Iterator[AttentionDecode]:
    """The usual head dims in every dtype; pages, and each further feature once with pages."""
    for head_dim in (64, 128, 256):
        for dtype in DTYPES if head_dim < 256 else ("fp16", "bf16"):
            yield AttentionDecode(head_dim=head_dim, dtype=dtype)
    for head_dim in (64, 128):
        for dtype in ("fp16", "bf16"):
            yield AttentionDecode(head_dim=head_dim, dtype=dtype, paged=True)
    for feature in AttentionDecode.features:
        if feature.name != "paged":
            yield AttentionDecode(head_dim=128, dtype="bf16", paged=True, **{feature.name: True})


def _is_shared(spec: AttentionDecode) -> bool:
    """Is it what a cascade asks of a prefix that many queries share?"""
    return spec.dtype != "fp32" and spec.head_dim <= 128 and spec.switched_on in ((), ("paged",))


def _merge_specs() -> Iterator[MergeState | MergeStates]:
    """Every head dim in every dtype; then what else splits, cascades and adapters take."""
    for spec in (MergeState, MergeStates):
        for head_dim in MERGE_HEAD_DIMS:
            for dtype in DTYPES:
                yield spec(head_dim=head_dim, dtype=dtype)
        for feature in ("out_fp32", "out_fp8", "base2"):
            yield spec(head_dim=128, dtype="bf16", **{feature: True})
    yield MergeStates(head_dim=128, dtype="bf16", ragged=True)
    yield MergeStates(head_dim=128, dtype="fp32", out_bf16=True)


def _softmax_specs() -> Iterator[Spec]:
    """Every dtype by rows in registers and in two passes; long rows split; features; top-k."""
    for dtype in DTYPES:
        for columns in SINGLE_COLUMNS:
            yield Softmax(columns=columns, dtype=dtype, single=True)
        yield Softmax(columns=LONG_COLUMNS, dtype=dtype, online=True)
    for dtype in ("bf16", "fp32"):
        yield Softmax(columns=LONG_COLUMNS, dtype=dtype, split=True)
        yield SoftmaxTopk(columns=131072, k=8, dtype=dtype)
    yield Softmax(columns=LONG_COLUMNS, dtype="fp32", safe=True)
    yield Softmax(columns=8192, dtype="bf16", single=True, log=True, lse=True)
    yield Softmax(columns=8192, dtype="bf16", single=True, mask=True)
    yield Softmax(columns=LONG_COLUMNS, dtype="bf16", online=True, scaled=True, out_fp32=True)


def catalog() -> dict[str, Variant]:
    """The committed variants by name, family by family, in the order of `specs`."""
    variants = [
        Variant(spec, default_config(spec, backend))
        for backend in BACKENDS
        for spec in specs()
        if why_no_tile(spec, backend) is None
    ]
    wide = [spec for spec in specs() if isinstance(spec, AttentionDecode) and _is_shared(spec)]
    variants += [Variant(spec, wide_config(spec)) for spec in wide]
    return {variant.name: variant for variant in variants}
