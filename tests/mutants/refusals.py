"""Wrong calls: each has to be refused by name, before anything is launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from layout_probes import packed_call
from probes import PROBES, SMALL, drawn, launched

from attngen.variant import Variant

Call = dict[str, Any]


@dataclass(frozen=True)
class WrongCall:
    """A call with one argument changed, and how it has to be refused.

    Attributes:
        name: what is wrong.
        error: the class of the error.
        words: how its message begins: the argument's name and what it got.
        spoil: changes the arguments of a right call.
    """

    name: str
    error: type[Exception]
    words: str
    spoil: Callable[[Call], Call]

    def __call__(self, module: ModuleType, variant: Variant) -> set[str]:
        arguments = self.spoil(_right_call(variant))
        try:
            launched(module, lambda: getattr(module, variant.spec.op)(**arguments))
        except (TypeError, ValueError) as error:
            fine = type(error) is self.error and str(error).startswith(self.words)
            return set() if fine else {"refusal"}
        except (AttributeError, RuntimeError, ZeroDivisionError):
            return {"refusal"}
        return {"refusal"}


def _right_call(variant: Variant) -> Call:
    if variant.spec.op != "attention_fwd":
        return packed_call(variant)
    (q, k, v), options = drawn(variant, SMALL)
    return {"q": q, "k": k, "v": v, **options}


def with_(**changes: Callable[[Call], Any]) -> Callable[[Call], Call]:
    """What changes some arguments of a right call, each by a function of all of them."""
    return lambda call: call | {name: change(call) for name, change in changes.items()}


def _not_interpreted(module: ModuleType, variant: Variant) -> set[str]:
    """A launcher whose kernel was compiled for a GPU refuses tensors of a CPU."""
    call = WrongCall("", TypeError, "q: got device cpu, allowed is a GPU", lambda call: call)
    interpreted = module._INTERPRETED
    module._INTERPRETED = False  # type: ignore[attr-defined]
    try:
        return call(module, variant)
    finally:
        module._INTERPRETED = interpreted  # type: ignore[attr-defined]


WRONG_CALLS = (
    WrongCall(
        "5 query heads for 2 KV heads",
        ValueError,
        "heads_q: got 5",
        with_(q=lambda call: call["q"][:, :, :1].expand(-1, -1, 5, -1)),
    ),
    WrongCall(
        "no KV heads",
        ValueError,
        "heads_q: got 4",
        with_(k=lambda call: call["k"][:, :, :0], v=lambda call: call["v"][:, :, :0]),
    ),
    WrongCall(
        "k of another dtype",
        TypeError,
        "k: got torch.bfloat16",
        with_(k=lambda call: call["k"].bfloat16()),
    ),
    WrongCall(
        "k on another device",
        TypeError,
        "k: got device meta",
        with_(k=lambda call: call["k"].to("meta")),
    ),
    WrongCall(
        "k of another head dim",
        ValueError,
        "k: got shape (2, 19, 2, 8)",
        with_(k=lambda call: call["k"][..., :8]),
    ),
    WrongCall(
        "k of another batch",
        ValueError,
        "k: got shape (1, 19, 2, 16)",
        with_(k=lambda call: call["k"][:1]),
    ),
    WrongCall(
        "v of another length",
        ValueError,
        "v: got shape (2, 18, 2, 16)",
        with_(v=lambda call: call["v"][:, :18]),
    ),
    WrongCall(
        "every second column of q",
        ValueError,
        "q: got last-dimension stride 2",
        with_(q=lambda call: call["q"].repeat_interleave(2, 3)[..., ::2]),
    ),
    WrongCall(
        "out of another length",
        ValueError,
        "out: got shape (2, 16, 4, 16)",
        with_(out=lambda call: call["q"][:, :16].clone()),
    ),
    WrongCall(
        "out with a strided last dimension",
        ValueError,
        "out: got last-dimension stride 2",
        with_(out=lambda call: call["q"].repeat_interleave(2, 3)[..., ::2]),
    ),
    WrongCall(
        "out of one row for all",
        ValueError,
        "out: got strides (1088, 0, 16, 1)",
        with_(out=lambda call: call["q"].clone()[:, :1].expand(-1, 17, -1, -1)),
    ),
    WrongCall(
        "a tensor as scale",
        TypeError,
        "sm_scale: got Tensor",
        with_(sm_scale=lambda _: torch.tensor(0.5)),
    ),
    WrongCall(
        "a scale of NaN", ValueError, "sm_scale: got nan", with_(sm_scale=lambda _: torch.nan)
    ),
    WrongCall(
        "2**28 queries",
        ValueError,
        "seqlen: got 268435456",
        with_(q=lambda call: call["q"][:, :1].expand(-1, 2**28, -1, -1)),
    ),
    WrongCall(
        "an offset of 1.5",
        TypeError,
        "causal_offset: got 1.5",
        with_(causal_offset=lambda _: 1.5),
    ),
    WrongCall(
        "offsets in float32",
        TypeError,
        "causal_offset: got torch.float32",
        with_(causal_offset=lambda _: torch.zeros(2)),
    ),
    WrongCall(
        "offsets for another batch",
        ValueError,
        "causal_offset: got shape (3,)",
        with_(causal_offset=lambda _: torch.zeros(3, dtype=torch.int32)),
    ),
    WrongCall(
        "a window of -2",
        ValueError,
        "window_size: got (-2, 0)",
        with_(window_size=lambda _: (-2, 0)),
    ),
    WrongCall(
        "one number as window", TypeError, "window_size: got 3", with_(window_size=lambda _: 3)
    ),
    WrongCall("a softcap of 1e39", ValueError, "softcap: got 1e+39", with_(softcap=lambda _: 1e39)),
    WrongCall(
        "a tensor as softcap",
        TypeError,
        "softcap: got Tensor",
        with_(softcap=lambda _: torch.tensor(2.0)),
    ),
    WrongCall("a softcap of 0", ValueError, "softcap: got 0.0", with_(softcap=lambda _: 0.0)),
    WrongCall(
        "a softcap of NaN", ValueError, "softcap: got nan", with_(softcap=lambda _: torch.nan)
    ),
    WrongCall(
        "slopes in float16",
        TypeError,
        "alibi_slopes: got torch.float16",
        with_(alibi_slopes=lambda call: call["alibi_slopes"].half()),
    ),
    WrongCall(
        "sinks for other heads",
        ValueError,
        "sinks: got shape (3,)",
        with_(sinks=lambda call: call["sinks"][:3]),
    ),
    WrongCall("a list as sinks", TypeError, "sinks: got list", with_(sinks=lambda _: [0.0] * 4)),
    WrongCall(
        "a mask of integers",
        TypeError,
        "mask: got torch.int8",
        with_(mask=lambda call: call["mask"].to(torch.int8)),
    ),
    WrongCall(
        "a bias in float64",
        TypeError,
        "bias: got torch.float64",
        with_(bias=lambda call: call["bias"].double()),
    ),
    WrongCall(
        "a bias on another device",
        TypeError,
        "bias: got device meta",
        with_(bias=lambda call: call["bias"].to("meta")),
    ),
)

PROBES |= {f"wrong call: {call.name}": call for call in WRONG_CALLS}
PROBES["wrong call: CPU tensors, not interpreted"] = _not_interpreted
