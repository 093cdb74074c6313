"""attngen: attention kernels generated from templates and held to a float64 reference.

The operators (`attention` and its relatives, `merge_state`, `merge_states`) take torch tensors and
call generated kernels; `attngen.adapters` calls them by the names of other libraries;
`attngen.reference` is the specification in numpy; the command line is `attngen`. Importing this
package imports neither torch, triton nor numpy: names are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attngen import adapters as adapters
    from attngen import reference as reference
    from attngen.config import TileConfig as TileConfig
    from attngen.errors import InvalidSpec as InvalidSpec
    from attngen.errors import NotGenerated as NotGenerated
    from attngen.errors import StaleKernel as StaleKernel
    from attngen.finder import load as load
    from attngen.runtime import attention as attention
    from attngen.runtime_cascade import cascade_attention as cascade_attention
    from attngen.runtime_decode import attention_decode as attention_decode
    from attngen.runtime_layouts import attention_paged as attention_paged
    from attngen.runtime_layouts import attention_varlen as attention_varlen
    from attngen.runtime_merge import merge_state as merge_state
    from attngen.runtime_merge import merge_states as merge_states
    from attngen.runtime_softmax import softmax as softmax
    from attngen.runtime_softmax import softmax_topk as softmax_topk
    from attngen.spec_attention import AttentionDecode as AttentionDecode
    from attngen.spec_attention import AttentionFwd as AttentionFwd
    from attngen.spec_attention import AttentionPaged as AttentionPaged
    from attngen.spec_attention import AttentionVarlen as AttentionVarlen
    from attngen.spec_merge import MergeState as MergeState
    from attngen.spec_merge import MergeStates as MergeStates
    from attngen.spec_softmax import Softmax as Softmax
    from attngen.spec_softmax import SoftmaxTopk as SoftmaxTopk
    from attngen.variant import Variant as Variant
    from attngen.variant import parse as parse

_HOMES = {
    "attention": "runtime",
    "attention_decode": "runtime_decode",
    "cascade_attention": "runtime_cascade",
    "attention_varlen": "runtime_layouts",
    "attention_paged": "runtime_layouts",
    "merge_state": "runtime_merge",
    "merge_states": "runtime_merge",
    "softmax": "runtime_softmax",
    "softmax_topk": "runtime_softmax",
    "load": "finder",
    "AttentionDecode": "spec_attention",
    "AttentionFwd": "spec_attention",
    "AttentionVarlen": "spec_attention",
    "AttentionPaged": "spec_attention",
    "MergeState": "spec_merge",
    "MergeStates": "spec_merge",
    "Softmax": "spec_softmax",
    "SoftmaxTopk": "spec_softmax",
    "TileConfig": "config",
    "Variant": "variant",
    "parse": "variant",
    "InvalidSpec": "errors",
    "NotGenerated": "errors",
    "StaleKernel": "errors",
}

_MODULES = ("adapters", "reference")

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"attngen.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"attngen.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'attngen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
