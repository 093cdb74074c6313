"""Have torch trace launchers as parts of one graph each, and print which it could, as JSON.

A process of its own, since kernels must not be interpreted. There is no GPU: tensors are fake, and
what torch asks a GPU about while it traces is answered here. Nothing is compiled or launched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._triton
from torch._subclasses.fake_tensor import FakeTensorMode

import attngen

torch.utils._triton.has_triton = lambda *_: True
# Two functions: torch keeps a table of its own by function.
torch.cuda._exchange_device = lambda _: 0
torch.cuda._maybe_exchange_device = lambda _: 0


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def integers(*shape: int) -> torch.Tensor:
    return tensor(*shape, dtype=torch.int32)


def calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments for committed kernels.

    None of decode: its launcher takes a tensor apart by indexing, which torch built without CUDA
    cannot do to a fake one of a GPU.
    """
    dense = tensor(2, 5, 4, 128), tensor(2, 7, 2, 128), tensor(2, 7, 2, 128)
    packed = tensor(5, 4, 128), tensor(7, 2, 128), tensor(7, 2, 128), integers(3), integers(3)
    cache = tensor(7, 16, 2, 128), tensor(7, 16, 2, 128), integers(2, 3), integers(2)
    state = tensor(5, 4, 128), tensor(4, 5, dtype=torch.float32)
    states = tensor(3, 5, 4, 128), tensor(3, 4, 5, dtype=torch.float32)
    queries = {"cu_seqlens_q": integers(3), "max_seqlen_q": 3}
    return {
        "attention_fwd_d128_bf16_m64_n32_w4_s4": (dense, {}),
        "attention_fwd_d128_bf16_causal_m64_n32_w4_s4": (dense, {}),
        "attention_fwd_d128_bf16_causal_sinks_m64_n32_w4_s4": (dense, {"sinks": tensor(4)}),
        "attention_varlen_d128_bf16_causal_m64_n32_w4_s4": ((*packed, 3, 4), {}),
        "attention_paged_d128_bf16_causal_m64_n32_w4_s5": ((packed[0], *cache), queries),
        "merge_state_d128_bf16_m16_w4_s1": ((*state, *state), {}),
        "merge_states_d128_bf16_m4_w1_s1": (states, {}),
        "softmax_c1024_bf16_single_m2_w4_s1": ((tensor(5, 700),), {}),
    }


def why_not(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """What broke the graph of a call, with what follows it; None where nothing did."""
    launcher: Callable[..., Any] = getattr(attngen.load(name), attngen.parse(name).spec.op)

    def call(*given: Any) -> Any:
        result = launcher(*given, **options)
        return result * 2 if isinstance(result, torch.Tensor) else result[0] * 2

    torch._dynamo.reset()
    try:
        torch.compile(call, backend="eager", fullgraph=True)(*arguments)
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    with FakeTensorMode(allow_non_fake_inputs=True):
        chosen = calls()
    print(json.dumps({name: why_not(name, *call) for name, call in chosen.items()}))
