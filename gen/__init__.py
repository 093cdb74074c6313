"""attngen: attention kernels generated from templates and held to a float64 reference.

The operators (`attention`) take torch tensors and call generated kernels; `attngen.reference` is
the specification in numpy; the command line is `attngen`. Importing this package imports neither
torch, triton nor numpy: names are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attngen import reference as reference
    from attngen.config import TileConfig as TileConfig
    from attngen.errors import InvalidSpec as InvalidSpec
    from attngen.errors import NotGenerated as NotGenerated
    from attngen.errors import StaleKernel as StaleKernel
    from attngen.finder import load as load
    from attngen.runtime import attention as attention
    from attngen.runtime_softmax import softmax as softmax
    from attngen.runtime_softmax import softmax_topk as softmax_topk
    from attngen.spec_attention import AttentionFwd as AttentionFwd
    from attngen.spec_softmax import Softmax as Softmax
    from attngen.spec_softmax import SoftmaxTopk as SoftmaxTopk
    from attngen.variant import Variant as Variant
    from attngen.variant import parse as parse

_HOMES = {
    "attention": "runtime",
    "softmax": "runtime_softmax",
    "softmax_topk": "runtime_softmax",
    "load": "finder",
    "AttentionFwd": "spec_attention",
    "Softmax": "spec_softmax",
    "SoftmaxTopk": "spec_softmax",
    "TileConfig": "config",
    "Variant": "variant",
    "parse": "variant",
    "InvalidSpec": "errors",
    "NotGenerated": "errors",
    "StaleKernel": "errors",
}

__all__ = [*_HOMES, "reference"]


def __getattr__(name: str) -> Any:
    if name == "reference":
        return importlib.import_module("attngen.reference")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"attngen.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'attngen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
