"""Inputs that show faults, each a function of a kernel's module that returns the checks it fails.

Most are the cases of `attngen verify`, held by its checks; a few are inputs of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attngen import verify, verify_attention
from attngen.cases_attention import Case, inputs
from attngen.reference import attention, error_budget
from attngen.reference.checks import Verdict, Worst, compare, plain_attention
from attngen.variant import Variant

Probe = Callable[[ModuleType, Variant], set[str]]

PROBES: dict[str, Probe] = {}
"""The probes that are not a plain case of `attngen verify`, by name."""

EXTRA_CASES = {
    "many blocks of keys": Case("many blocks of keys", 16, 48 * 16, heads_q=1),
    "64 rows, many blocks": Case("64 rows, many blocks", 64, 24 * 16, heads_q=1),
}
"""Cases that `attngen.cases_attention` does not have."""


def look_up(name: str) -> Probe:
    """The probe of that name, a case of `attngen.cases_attention` among others."""
    return PROBES[name] if name in PROBES else lambda module, variant: _case(module, variant, name)


def _case(module: ModuleType, variant: Variant, name: str) -> set[str]:
    table, check = verify.OPS[variant.spec.op]
    known: dict[str, Any] = EXTRA_CASES | {case.name: case for case in table(variant)}
    return failed_checks(check(module, variant, known[name], "cpu"))


def failed_checks(verdict: Verdict) -> set[str]:
    """The checks that a verdict fails; where o is wrong outright, sharpness is not asked."""
    words = " ".join(verdict.failures)
    if "addresses lie outside the tensor" in words:
        return {"out of bounds"}
    checks = set()
    for output, worst in (("o", verdict.o), ("lse", verdict.lse)):
        if worst.ratio > 1:
            checks.add(f"{'NaN' if _not_finite(worst) else 'hard'} {output}")
    if not {"NaN o", "hard o"} & checks:
        checks |= {f"sharp {scope}" for scope in ("row", "head") if f"sharp: {scope}" in words}
    checks |= {what for what in ("values", "indices") if f" {what} are not" in words}
    if "wrote beyond" in words:
        checks.add("rows around out")
    if "bits: " in words:
        checks.add("bits")
    return checks


def _not_finite(worst: Worst) -> bool:
    return not np.isfinite([worst.got, worst.expected]).all()


def probe(name: str) -> Callable[[Probe], Probe]:
    """Enter a function in PROBES."""

    def enter(function: Probe) -> Probe:
        PROBES[name] = function
        return function

    return enter


def hold(
    module: ModuleType,
    variant: Variant,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    out: torch.Tensor | None = None,
    **options: Any,
) -> set[str]:
    """Run a kernel on tensors of any layout and compare it with the reference."""
    o, lse = module.attention_fwd(*tensors, **options, out=out)
    dtype = variant.spec.dtype
    q, k, v = (x.double().numpy() for x in tensors)
    attn: dict[str, Any] = {
        name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in options.items()
    }
    attn["causal"] = variant.spec.causal
    bounds = error_budget(q, k, v, operand_dtype=dtype, block_n=variant.config.block_n, **attn)
    plain = plain_attention(q, k, v, operand_dtype=dtype, **attn)
    expected = attention(q, k, v, **attn)
    return failed_checks(
        compare(
            o.double().numpy(), lse.double().numpy(), *expected, *bounds, plain, out_dtype=dtype
        )
    )


def drawn(
    variant: Variant, case: Case
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], dict[str, Any]]:
    """Contiguous q, k and v of a case, and the options as tensors."""
    q, k, v, options = inputs(variant, case)
    dtype = verify_attention.TORCH_DTYPES[variant.spec.dtype]
    tensors = tuple(torch.from_numpy(x).to(dtype) for x in (q, k, v))
    arrays = {
        name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in options.items()
    }
    return (tensors[0], tensors[1], tensors[2]), arrays


SMALL = Case("small", 17, 19, batch=2, heads_q=4, heads_kv=2)
SMALLER = Case("smaller", 17, 19, batch=2)


@probe("v laid out by heads, k by rows")
def v_by_heads(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("by heads", 17, 19, heads_q=2, heads_kv=2))
    v = v.transpose(1, 2).contiguous().transpose(1, 2)
    return hold(module, variant, (q, k, v), **options)


@probe("a bias laid out by keys")
def transposed_bias(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALLER)
    options["bias"] = options["bias"].transpose(2, 3).contiguous().transpose(2, 3)
    return hold(module, variant, tensors, **options)


@probe("one mask for all heads")
def broadcast_mask(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALLER)
    options["mask"] = options["mask"][:, :1]
    return hold(module, variant, tensors, **options)


@probe("a mask that hides every key of some rows")
def empty_rows(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALLER)
    options["mask"][:, :, 3:7] = False
    return hold(module, variant, tensors, **options)


@probe("a window open on the left")
def open_window(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALLER)
    return hold(module, variant, tensors, **options | {"window_size": (-1, 2)})


@probe("NaN in the rows of v that no query sees")
def unseen_rows(module: ModuleType, variant: Variant) -> set[str]:
    (q, k, v), options = drawn(variant, Case("unseen", 5, 61))
    offset, left = 23, options.get("window_size", (61, 0))[0]
    v[:, : max(offset - left, 0)] = torch.nan
    v[:, 5 + offset :] = torch.nan
    return hold(module, variant, (q, k, v), **options, causal_offset=offset)


@probe("scores of 2**24")
def huge_scores(module: ModuleType, variant: Variant) -> set[str]:
    """Integers just below 2**24, exact in float32, a few units apart."""
    (q, k, v), _ = drawn(variant, Case("huge", 16, 48))
    q[...], k[...] = 1024.0, 1024.0
    q[..., 0] = 1.0
    k[..., 0] = (torch.arange(48) % 5)[None, :, None]
    return hold(module, variant, (q, k, v), sm_scale=1.0)


@probe("scores past the end of float32")
def scores_past_float32(module: ModuleType, variant: Variant) -> set[str]:
    """Products of 2**24 and a scale of 2**120: half of the rows see nothing but such below 0."""
    (q, k, v), _ = drawn(variant, Case("past", 16, 48))
    q[...], k[...] = 1024.0, 1024.0
    q[:, 8:] = -1024.0
    o, lse = module.attention_fwd(q, k, v, sm_scale=2.0**120)
    checks = {"NaN lse"} if not lse.isfinite().all() else set()
    return checks if o.isfinite().all() else checks | {"NaN o"}


@probe("out with room around it")
def roomy_out(module: ModuleType, variant: Variant) -> set[str]:
    """Rows after the last one and columns after the last one stay as they are."""
    tensors, options = drawn(variant, Case("roomy", 19, 35, heads_q=2))
    columns, margin = variant.spec.head_dim_v, variant.config.block_m
    buffer = torch.full((19 + margin, 2, columns + 16), torch.nan, dtype=tensors[0].dtype)
    out = buffer[None, :19, :, :columns]
    checks = hold(module, variant, tensors, out, **options)
    out.fill_(torch.nan)
    return checks if buffer.isnan().all() else checks | {"rows around out"}


@probe("out narrower than q")
def narrow_out(module: ModuleType, variant: Variant) -> set[str]:
    """q has rows twice as wide as those of out, after which there is room for as many."""
    (q, k, v), options = drawn(variant, Case("narrow", 19, 19))
    q = torch.cat((q, q), 3)[..., : q.shape[3]]
    buffer = torch.full((2 * 32 * q.stride(1),), torch.nan, dtype=q.dtype)
    out = buffer[: q.numel()].view(q.shape)
    checks = hold(module, variant, (q, k, v), out, **options)
    stray = not buffer[q.numel() :].isnan().all()
    return checks | ({"rows around out"} if stray else set())


@probe("out is what is returned")
def given_out(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALLER)
    out = torch.full_like(tensors[0], torch.nan)
    o, _ = module.attention_fwd(*tensors, **options, out=out)
    return set() if o is out and not out.isnan().any() else {"given out"}


class Launches:
    """Stands for a kernel: remembers the grids that it is launched on and computes nothing."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.grids.append(grid)
        return lambda *args, **kwargs: None


def launched(module: ModuleType, call: Callable[[], Any]) -> Launches:
    """What a call launches, with nothing being launched."""
    kernel, stand_in = module._KERNEL, Launches()
    module._KERNEL = stand_in  # type: ignore[attr-defined]
    try:
        call()
    finally:
        module._KERNEL = kernel  # type: ignore[attr-defined]
    return stand_in


@probe("the grid of 65544 heads")
def grid(module: ModuleType, variant: Variant) -> set[str]:
    q = torch.empty((8193, 1, 8, variant.spec.head_dim), dtype=torch.float16)
    grids = launched(module, lambda: module.attention_fwd(q, q, q)).grids
    fine = len(grids) == 1 and all(axis <= 65535 for axis in grids[0][1:])
    return set() if fine else {"grid"}


class NoSync(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses to bring a value of a tensor to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a value of a tensor was brought to the host")
        return func(*args, **(kwargs or {}))


@probe("no value of a tensor is brought to the host")
def host_sync(module: ModuleType, variant: Variant) -> set[str]:
    tensors, options = drawn(variant, SMALL)
    offsets = torch.tensor([3, 7])

    def call() -> None:
        with NoSync():  # type: ignore[no-untyped-call]
            module.attention_fwd(*tensors, **options, causal_offset=offsets)

    try:
        launched(module, call)
    except RuntimeError:
        return {"host sync"}
    return set()
