"""Scores and softcaps at the ends of float32: every state stays finite, and right where it can."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import load, reference, store  # noqa: E402
from attngen.variant import parse  # noqa: E402

OPS = ("attention_fwd", "attention_varlen", "attention_paged")


def built(op: str, features: str, folder: Path, dtype: str = "fp32") -> ModuleType:
    name = f"{op}_d16_{dtype}{features}_m16_n16_w1_s1"
    store.write(parse(name), folder)
    return load(name, [folder])


def call(module: ModuleType, q: Any, k: Any, v: Any, **options: Any) -> tuple[Any, Any]:
    """o and lse of one sequence, q [seqlen_q, heads, d], k and v alike, by any of the three."""
    bounds = [torch.tensor([0, len(x)], dtype=torch.int32, device=q.device) for x in (q, k)]
    if hasattr(module, "attention_fwd"):
        o, lse = module.attention_fwd(q[None], k[None], v[None], **options)
        return o[0], lse[0]
    if hasattr(module, "attention_varlen"):
        o, lse = module.attention_varlen(q, k, v, *bounds, len(q), len(k), **options)
    else:
        table = torch.zeros((1, 1), dtype=torch.int32, device=q.device)
        pages = k[None], v[None], table, bounds[1][1:]
        o, lse = module.attention_paged(q, *pages, cu_seqlens_q=bounds[0], **options)
    return o, lse


@pytest.mark.parametrize("features", ["", "_causal", "_window", "_causal_sinks"])
@pytest.mark.parametrize("op", OPS)
def test_the_lse_of_a_row_that_saw_keys_is_finite(
    device: str, tmp_path: Path, op: str, features: str
) -> None:
    """The scaled maximum is past the end of float32: the state must not pass for an empty one."""
    module = built(op, features, tmp_path)
    options: dict[str, Any] = {"sm_scale": 2.0**100}
    if "window" in features:
        options["window_size"] = (40, 0)
    if "sinks" in features:
        options["sinks"] = torch.tensor([-torch.inf, 3.0], device=device)
    q = torch.full((20, 2, 16), 2.0**50, device=device)
    q[:, 1] *= -1.0
    k = torch.full((37, 2, 16), 2.0**20, device=device)
    k[5:] = -(2.0**20)
    v = torch.randn(k.shape, generator=torch.manual_seed(0)).to(device)
    for sign in (1.0, -1.0):
        o, lse = call(module, q, sign * k, v, **options)
        arrays = (x.double().cpu().numpy()[None] for x in (q, sign * k, v))
        numbers = {n: x.cpu().numpy() if n == "sinks" else x for n, x in options.items()}
        expected, expected_lse = (
            torch.from_numpy(x)[0].to(device)
            for x in reference.attention(*arrays, causal="causal" in features, **numbers)
        )
        assert lse.isfinite().all()
        torch.testing.assert_close(o.double(), expected, atol=1e-6, rtol=0)
        near = expected_lse.clamp(-3.4e38, 3.4e38)
        torch.testing.assert_close(lse.double(), near, atol=0, rtol=1e-6)


@pytest.mark.parametrize("op", OPS)
def test_a_level_of_very_negative_scores_is_not_dropped(
    device: str, tmp_path: Path, op: str
) -> None:
    """Merged with a level that has no keys, it is the result."""
    module = built(op, "", tmp_path)
    q = torch.full((3, 1, 16), 2.0**50, device=device)
    v = torch.randn(q.shape, generator=torch.manual_seed(0)).to(device)
    o, lse = call(module, q, -q, v, sm_scale=2.0**60)
    none, empty = torch.zeros_like(o), torch.full_like(lse, -torch.inf)
    states = (x.double().cpu().numpy() for x in (o, lse, none, empty))
    merged, _ = reference.merge_state(*states)
    assert torch.equal(torch.from_numpy(merged), o.double().cpu()) and o.any()
