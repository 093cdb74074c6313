"""Steps of decode that show faults of the merge of splits: hard numbers, not hard shapes."""

from __future__ import annotations

from types import ModuleType

import torch
from probes import failed_checks, probe

from attngen.reference import attention, error_budget
from attngen.reference.checks import compare, plain_attention
from attngen.variant import Variant


def _step(variant: Variant, keys: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One query and some keys of one head: zeros but for the first column of q."""
    d = variant.spec.head_dim
    q, k = torch.zeros(1, 1, 1, d).half(), torch.zeros(1, keys, 1, d).half()
    q[..., 0] = 1.0
    return q, k, torch.zeros(1, keys, 1, d).half()


def _hold(
    module: ModuleType,
    variant: Variant,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    **splits: int,
) -> set[str]:
    o, lse = module.attention_decode(*tensors, sm_scale=1.0, **splits)
    exact = [x.double().numpy() for x in tensors]
    dtype, block_n = variant.spec.dtype, variant.config.block_n
    bounds = error_budget(*exact, operand_dtype=dtype, block_n=block_n, num_splits=80, sm_scale=1.0)
    plain = plain_attention(*exact, operand_dtype=dtype, sm_scale=1.0)
    expected = attention(*exact, sm_scale=1.0)
    found = (o.double().numpy(), lse.double().numpy())
    return failed_checks(compare(*found, *expected, *bounds, plain, out_dtype=dtype))


@probe("scores of 2**26 in two splits")
def huge_scores_apart(module: ModuleType, variant: Variant) -> set[str]:
    """Sixteen keys and one, all of the same score: float32 has no room for log 16 beside it."""
    q, k, v = _step(variant, 17)
    q[..., 0], k[..., 0], v[:, 16:] = 2.0**13, 2.0**13, 1.0
    return _hold(module, variant, (q, k, v), num_splits=2)


@probe("eighty splits, the last the largest")
def rising_scores(module: ModuleType, variant: Variant) -> set[str]:
    q, k, v = _step(variant, 80)
    k[..., 0], v[..., 0] = 100.0 * torch.arange(80)[:, None], torch.arange(80.0)[:, None]
    return _hold(module, variant, (q, k, v), split_size=1)


@probe("scores beyond float32")
def overflowing_scores(module: ModuleType, variant: Variant) -> set[str]:
    """Finite inputs give finite outputs, with one split and with more."""
    q, k, v = _step(variant, 40)
    q[..., 0], k[..., 0], v[...] = 1e4, 1e4, 1.0
    states = [
        module.attention_decode(q, k, v, sm_scale=scale, num_splits=n)
        for scale in (1e38, -1e38)
        for n in (1, 3)
    ]
    fine = all(o.eq(1).all() and lse.isfinite().all() for o, lse in states)
    return set() if fine else {"NaN lse"}
