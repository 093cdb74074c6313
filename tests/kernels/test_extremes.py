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
from attngen.verify import OPS as OPS_TO_VERIFY  # noqa: E402
from attngen.verify import verify  # noqa: E402

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


SHARP = [
    "attention_fwd_d16_fp32_softcap_m16_n16_w1_s1",
    "attention_fwd_d64_fp32_causal_softcap_m32_n32_w4_s1",
    "attention_varlen_d16_fp32_softcap_m16_n16_w1_s1",
    "attention_paged_d16_fp32_causal_softcap_m16_n16_w1_s1",
    "attention_decode_d16_fp32_softcap_m16_n16_w1_s1",
]


@pytest.mark.parametrize("name", SHARP)
def test_a_softcap_costs_no_precision(device: str, tmp_path: Path, name: str) -> None:
    """Scores far below the cap keep their relative precision."""
    variant = parse(name)
    store.write(variant, tmp_path)
    table, _ = OPS_TO_VERIFY[variant.spec.op]
    chosen = [case for case in table(variant) if case.name.startswith("softcap")]
    assert len(chosen) == 2
    report = verify(load(name, [tmp_path]), variant, device, chosen)
    assert not report.failed, str(report)


@pytest.mark.parametrize("size", [1e-30, 1e-4, 0.3, 0.549, 0.551, 1.0, 8.0, 30.0, 1e30])
def test_the_tangent_is_near_and_odd(device: str, tmp_path: Path, size: float) -> None:
    """One key: lse is its capped score, here of cap 1."""
    module = built("attention_fwd", "_softcap", tmp_path)
    x = size * torch.linspace(0.5, 1.0, 64, device=device)
    one = torch.zeros((1, 1, 16), device=device)
    one[..., 0] = 1.0
    found = []
    for sign in (1.0, -1.0):
        q = sign * x[:, None, None] * one
        _, lse = call(module, q, one, one, sm_scale=1.0, softcap=1.0)
        found.append(lse[0])
    assert torch.equal(found[0], -found[1])
    torch.testing.assert_close(found[0].double(), x.double().tanh(), atol=0, rtol=2.0**-20)


@pytest.mark.parametrize(
    ("softcap", "size", "sm_scale"),
    [
        (2.0**127, 1.0, 1.0),
        (3.4e38, 3.0, 0.25),
        (1e38, 1e15, 1e-30),
        (1e25, 3.0, 1.0),
        (1e4, 1e15, 2e38),
        (1.0, 0.0, 2e38),
        (2.0**-126, 1.0, 1.0),
        (1e-30, 1e10, 1e30),
        (1e-30, 0.0, 1e30),
    ],
)
@pytest.mark.parametrize("op", OPS)
def test_softcaps_at_the_ends_of_float32(
    device: str, tmp_path: Path, op: str, softcap: float, size: float, sm_scale: float
) -> None:
    module = built(op, "_softcap", tmp_path)
    q, k, v = torch.randn((3, 20, 1, 16), generator=torch.manual_seed(0)).to(device)
    attn = {"softcap": softcap, "sm_scale": sm_scale}
    o, lse = call(module, size * q, size * k, v, **attn)
    arrays = (x.double().cpu().numpy()[None] for x in (size * q, size * k, v))
    expected, expected_lse = (torch.from_numpy(x)[0] for x in reference.attention(*arrays, **attn))
    torch.testing.assert_close(o.double().cpu(), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(lse.double().cpu(), expected_lse, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("op", (*OPS, "attention_decode"))
@pytest.mark.parametrize("softcap", [1e39, 1e-300, 2.0**128, 2.0**-127, 10**400])
def test_a_softcap_that_float32_does_not_hold_is_refused(
    device: str, tmp_path: Path, op: str, softcap: float
) -> None:
    module = built(op, "_softcap", tmp_path)
    q = torch.zeros((3, 1, 16), device=device)
    with pytest.raises(
        ValueError, match=r"softcap: got .*, allowed is from 2\*\*-126 to less than"
    ):
        if op == "attention_decode":
            module.attention_decode(q[None], q[None], q[None], softcap=softcap)
        else:
            call(module, q, q, q, softcap=softcap)
