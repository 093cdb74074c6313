"""The Hopper launcher's checks and arithmetic, on CPU tensors that pretend to be on a Hopper."""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="a kernel imports torch")
pytest.importorskip("triton", reason="a kernel imports triton")

from attngen import load  # noqa: E402

CAUSAL = "attention_fwd_d128_bf16_causal_m128_n128_w4_s2_sm90"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reaches the launch: (plan, tensors), with nothing launched."""
    seen: list[Any] = []
    for name in (CAUSAL, CAUSAL.replace("_causal", "")):
        module = load(name)
        monkeypatch.setattr(module, "_plans", {})
        monkeypatch.setattr(module.Plan, "launch", lambda plan, *x: seen.append((plan, x)))
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    return seen


def kernel(causal: bool = True) -> ModuleType:
    return load(CAUSAL if causal else CAUSAL.replace("_causal", ""))


def rows(seqlen: int, heads: int = 2, *, batch: int = 1, d: int = 128) -> Any:
    return torch.randn(batch, seqlen, heads, d).bfloat16()


def test_a_second_call_of_the_same_shapes_takes_the_plan(launched: list[Any]) -> None:
    module, q, k = kernel(), rows(300), rows(300, 1)
    for _ in range(2):
        o, lse = module.attention_fwd(q, k, k)
        assert o.shape == q.shape and lse.shape == (1, 2, 300) and lse.dtype == torch.float32
    (plan, tensors), (again, _) = launched
    assert plan is again and len(module._plans) == 1
    assert tensors[0] is q and tensors[3].shape == q.shape
    assert plan.scalars == (300, 300, 0, 2, 2, 3, 2, 2, 6, plan.scalars[9], False)
    assert plan.scalars[9] == pytest.approx(math.log2(math.e) / math.sqrt(128))
    assert plan.num_programs == 6


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_kv", "offset", "keys", "taken", "straddles"),
    [
        (300, 301, None, 301, 1, True),
        (300, 300, 5, 300, 5, True),
        (300, 300, -64, 236, -64, False),
        (5, 200, 3, 8, 3, True),
        (4, 4, 2**40, 4, 4, True),
    ],
)
def test_offsets(
    launched: list[Any],
    seqlen_q: int,
    seqlen_kv: int,
    offset: int | None,
    keys: int,
    taken: int,
    straddles: bool,
) -> None:
    """Keys that no query sees are cut off; beyond any length an offset changes nothing."""
    k = rows(seqlen_kv)
    kernel().attention_fwd(rows(seqlen_q), k, k, causal_offset=offset)
    ((plan, _),) = launched
    assert plan.scalars[:3] == (seqlen_q, keys, taken) and plan.scalars[-1] is straddles
    assert plan.shapes[1] == plan.shapes[2] == (1, keys, 2)


def test_keys_that_fill_the_last_block_need_no_mask(launched: list[Any]) -> None:
    for seqlen in (256, 257):
        kernel(causal=False).attention_fwd(rows(64), rows(seqlen), rows(seqlen))
    assert [plan.scalars[-1] for plan, _ in launched] == [True, False]


def test_nothing_to_compute_and_nothing_to_see(launched: list[Any]) -> None:
    o, lse = kernel().attention_fwd(rows(0), rows(3), rows(3))
    assert o.numel() == lse.numel() == 0
    for o, lse in (
        kernel().attention_fwd(rows(3), rows(0), rows(0)),
        kernel().attention_fwd(rows(5), rows(2), rows(2), causal_offset=-5),
    ):
        assert not o.any() and lse.eq(-math.inf).all()
    assert launched == []


@pytest.mark.parametrize(("scale", "factor"), [(-0.5, -1.0), (0.0, 0.0), (-0.0, 0.0), (1e-40, 0.0)])
def test_the_sign_of_the_scale_goes_into_q(
    launched: list[Any], scale: float, factor: float
) -> None:
    q = rows(8)
    kernel().attention_fwd(q, q, q, sm_scale=scale)
    ((plan, tensors),) = launched
    assert torch.equal(tensors[0], q * factor)
    assert plan.scalars[9] == pytest.approx(math.log2(math.e) * (abs(scale) if factor else 1.0))


def bad(q: Any) -> dict[str, tuple[dict[str, Any], type[Exception], str]]:
    """What is wrong: (changed arguments, the error, what it says)."""
    odd = torch.randn(1, 8, 2, 129).bfloat16()[..., :128]
    return {
        "no tensor": ({"q": [1.0]}, TypeError, "q: got list"),
        "dtype": ({"k": q.half()}, TypeError, "k: got torch.float16, allowed is torch.bfloat16"),
        "columns": ({"v": q[..., :64]}, ValueError, "v: got shape"),
        "length": ({"v": q[:, :3]}, ValueError, "v: got shape"),
        "heads": ({"q": q[:, :, [0, 0, 0]]}, ValueError, "heads_q: got 3"),
        "strides of q": ({"q": odd}, ValueError, r"q: got strides \(2064, 258, 129, 1\)"),
        "strides of v": ({"v": odd}, ValueError, "v: got strides"),
        "scale": ({"sm_scale": math.nan}, ValueError, "sm_scale: got nan"),
        "a word as scale": ({"sm_scale": "1"}, TypeError, "sm_scale: got str, allowed is a number"),
        "a tensor as scale": ({"sm_scale": q[0, 0, 0, 0]}, TypeError, "sm_scale: got Tensor"),
        "offset": ({"causal_offset": 1.5}, TypeError, "causal_offset: got float"),
        "switch": ({"causal_offset": True}, TypeError, "causal_offset: got bool"),
        "offsets": ({"causal_offset": torch.zeros(1)}, TypeError, "causal_offset: got Tensor"),
        "out's shape": ({"out": q[:, :3]}, ValueError, "out: got shape"),
        "out's rows": (
            {"out": q[:, :1].expand(1, 8, 2, 128)},
            ValueError,
            r"out: got strides \(2048, 0, 128, 1\), allowed are none of 0",
        ),
        "out's dtype": ({"out": q.half()}, TypeError, "out: got torch.float16"),
    }


@pytest.mark.parametrize("what", bad(torch.zeros(1, 8, 2, 128)))
def test_bad_input_names_the_argument(launched: list[Any], what: str) -> None:
    q = rows(8)
    change, error, told = bad(q)[what]
    for _ in range(2):
        with pytest.raises(error, match=told):
            kernel().attention_fwd(**{"q": q, "k": q, "v": q, **change})
    assert launched == []


def test_an_address_off_16_bytes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="k: got an address that is 2 past a multiple of 16"):
        kernel()._check_base("k", 258)


def test_without_a_gpu() -> None:
    q = rows(8)
    with pytest.raises(TypeError, match="q: got device cpu, allowed is a GPU"):
        kernel().attention_fwd(q, q, q)
