"""The kernels that generated/ commits: what a plain `attngen build` builds."""

from __future__ import annotations

from collections.abc import Iterator

from attngen.config import BACKENDS
from attngen.ops import default_config, why_no_tile
from attngen.spec import DTYPES, Spec
from attngen.spec_attention import AttentionFwd
from attngen.spec_softmax import Softmax, SoftmaxTopk
from attngen.variant import Variant

HEAD_DIMS = (32, 64, 96, 128, 256)
SINGLE_COLUMNS = (256, 1024, 8192, 32768)
LONG_COLUMNS = 262144


def specs() -> Iterator[Spec]:
    """The specs of every operator, one operator after the other."""
    yield from attention_specs()
    yield from softmax_specs()


def attention_specs() -> Iterator[Spec]:
    """Every head dim in every dtype, causal and not; then each further feature once."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for causal in (False, True):
                yield AttentionFwd(head_dim=head_dim, dtype=dtype, causal=causal)
    for feature in AttentionFwd.features:
        if feature.name != "causal":
            yield AttentionFwd(head_dim=128, dtype="bf16", causal=True, **{feature.name: True})


def softmax_specs() -> Iterator[Spec]:
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
    return {variant.name: variant for variant in variants}
