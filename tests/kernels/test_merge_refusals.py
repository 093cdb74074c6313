"""What the merges say of wrong calls: the argument, what it got and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated  # noqa: E402


def states(
    device: str, n: int, tokens: int = 5, heads: int = 3, d: int = 64, dtype: Any = torch.float32
) -> tuple[Any, Any]:
    """o [n, tokens, heads, d] and lse [n, heads, tokens]."""
    generator = torch.Generator().manual_seed(0)
    o = torch.randn(n, tokens, heads, d, generator=generator)
    lse = 3 * torch.randn(n, heads, tokens, generator=generator)
    return o.to(device, dtype), lse.to(device)


def bad(o: Any, lse: Any) -> dict[str, tuple[tuple[Any, ...], dict[str, Any], Any, str]]:
    """Wrong calls of merge_state: (tensors, options, the error, what it says)."""
    a, b, la, lb = o[0], o[1], lse[0], lse[1]
    pages = torch.zeros(3, *a.shape, dtype=a.dtype, device=a.device)
    fine = (a, la, b, lb)
    return {
        "no tensor": ((a.tolist(), la, b, lb), {}, TypeError, "o_a: got list"),
        "no shape": ((a.sum(), la, b, lb), {}, ValueError, r"o_a: got shape \(\)"),
        "float64": ((a.double(), la, b, lb), {}, InvalidSpec, "dtype: got torch.float64"),
        "other dtypes": ((a, la, b.half(), lb), {}, TypeError, "o_b: got torch.float16"),
        "head dim 513": ((a.repeat(1, 1, 9)[..., :513], la, b, lb), {}, InvalidSpec, "got 513"),
        "two dimensions": ((a[0], la, b, lb), {}, ValueError, "o_a: got shape"),
        "other tokens": ((a, la, b[:4], lb), {}, ValueError, "o_b: got shape"),
        "strided columns": (
            (a, la, b.repeat_interleave(2, -1)[..., ::2], lb),
            {},
            ValueError,
            "o_b: got last-dimension stride 2, allowed is 1",
        ),
        "other device": ((a, la, b.to("meta"), lb), {}, TypeError, "o_b: got device meta"),
        "lse on another device": ((a, la.to("meta"), b, lb), {}, TypeError, "lse_a: got device"),
        "lse in half": ((a, la.half(), b, lb), {}, TypeError, "lse_a: got torch.float16"),
        "lse in double": ((a, la, b, lb.double()), {}, TypeError, "lse_b: got torch.float64"),
        "the other layout": (
            (a, la.mT, b, lb),
            {},
            ValueError,
            r"lse_a: got shape \(5, 3\), allowed with lse_layout='ht' is \(3, 5\) \(it fits 'th'\)",
        ),
        "the other layout of out_lse": (
            fine,
            {"out_lse": torch.empty_like(la).mT},
            ValueError,
            "out_lse: got shape .*it fits 'th'",
        ),
        "no layout": (fine, {"lse_layout": "bh"}, ValueError, "lse_layout: got 'bh', allowed are"),
        "out of another shape": (fine, {"out": pages[0, :4]}, ValueError, "out: got shape"),
        "out on another device": (fine, {"out": pages[0].to("meta")}, TypeError, "out: got device"),
        "out_dtype int": (
            fine,
            {"out_dtype": torch.int8},
            InvalidSpec,
            "out_dtype: got torch.int8",
        ),
        "out of another dtype": (
            fine,
            {"out": pages[0], "out_dtype": torch.bfloat16},
            (TypeError, NotGenerated),
            "out: got torch.float32|is not built",
        ),
        "out in expanded memory": (
            fine,
            {"out": pages[0, :1].expand(5, -1, -1)},
            ValueError,
            "out: got strides",
        ),
        "out_lse unasked": (
            fine,
            {"out_lse": torch.empty_like(la), "return_lse": False},
            ValueError,
            "out_lse: got a tensor",
        ),
        "a scale without fp8": (
            fine,
            {"output_scale": 2.0, "out_dtype": a.dtype},
            ValueError,
            "scale",
        ),
        "context beyond the tokens": (
            fine,
            {"prefill_tokens_with_context": 6},
            ValueError,
            "prefill_tokens_with_context: got 6, allowed is 0 to 5",
        ),
        "context below 0": (
            fine,
            {"prefill_tokens_with_context": -1},
            ValueError,
            "prefill_tokens_with_context: got -1",
        ),
        "context as a tensor": (
            fine,
            {"prefill_tokens_with_context": la.sum()},
            TypeError,
            "prefill_tokens_with_context: got tensor",
        ),
        "batches apart": (
            tuple(x[None, None].repeat(2, 3, *[1] * x.dim()).transpose(0, 1) for x in fine),
            {},
            ValueError,
            "o_a: got strides .* batch dimensions that view as one",
        ),
    }


@pytest.mark.parametrize("what", bad(torch.zeros(2, 5, 3, 64), torch.zeros(2, 3, 5)))
def test_bad_input_names_the_argument_before_anything_runs(device: str, what: str) -> None:
    tensors, options, error, told = bad(*states(device, 2))[what]
    with pytest.raises(error, match=told):
        attngen.merge_state(*tensors, **options)


def test_memory_that_overlaps_is_refused_by_name(device: str) -> None:
    o, lse = states(device, 2)
    a, b = o
    room = torch.zeros(7, 3, 64, device=device)
    room[1:6] = a
    logs = torch.zeros(7, 3, device=device).mT
    for out, told in (
        ({"out": room[:5]}, "out: got memory that overlaps o_a"),
        ({"out": room[2:7]}, "out: got memory that overlaps o_a"),
        ({"out": room[1:6].transpose(0, 1)[:, :3].transpose(0, 1)}, "out: got shape"),
        ({"out_lse": logs[:, :5]}, "out_lse: got memory that overlaps lse_a"),
        ({"out_lse": room[1:6, :, 0].mT}, "out_lse: got memory that overlaps o_a"),
        ({"out": a.new_empty(a.shape), "out_lse": "out"}, "out_lse: got memory that overlaps out"),
    ):
        if out.get("out_lse") == "out":
            out["out_lse"] = out["out"][:, :, 0].mT
        with pytest.raises(ValueError, match=told):
            attngen.merge_state(room[1:6], logs[:, 1:6], b, lse[1], **out)
    with pytest.raises(ValueError, match="out: got memory that overlaps o, allowed is its own"):
        attngen.merge_states(o, lse, out=o[0])


@pytest.mark.parametrize(
    ("indptr", "error", "told"),
    [
        (torch.zeros(3), TypeError, "indptr: got torch.float32, allowed are torch.int32"),
        (torch.zeros(2, 3).int(), ValueError, r"indptr: got shape \(2, 3\), allowed is \[tokens"),
        (torch.zeros(0).int(), ValueError, r"indptr: got shape \(0,\)"),
        ([0, 1], TypeError, "indptr: got list"),
    ],
)
def test_bad_lists_of_states(device: str, indptr: Any, error: type[Exception], told: str) -> None:
    o, lse = states(device, 2, d=128, dtype=torch.bfloat16)
    with pytest.raises(error, match=told):
        lists = indptr.to(device) if isinstance(indptr, torch.Tensor) else indptr
        attngen.merge_states(o[:, 0], lse[:, :, 0].mT, indptr=lists)
    with pytest.raises(ValueError, match=r"o: got shape .*\[states, heads, head_dim\]"):
        attngen.merge_states(o, lse, indptr=torch.zeros(3, device=device).int())


@pytest.mark.parametrize(
    ("scale", "error", "told"),
    [
        (0.0, ValueError, "output_scale: got 0.0, allowed is a finite number above 0"),
        (-1.0, ValueError, "output_scale: got -1.0"),
        (math.nan, ValueError, "output_scale: got nan"),
        (math.inf, ValueError, "output_scale: got inf"),
        ("1", TypeError, "output_scale: got str"),
        (torch.ones(2), ValueError, r"output_scale: got shape \(2,\), allowed is one element"),
        (torch.ones(1).half(), TypeError, "output_scale: got torch.float16"),
    ],
)
def test_bad_scales(device: str, scale: Any, error: type[Exception], told: str) -> None:
    o, lse = states(device, 2, d=128, dtype=torch.bfloat16)
    scale = scale.to(device) if isinstance(scale, torch.Tensor) else scale
    with pytest.raises(error, match=told):
        attngen.merge_state(o[0], lse[0], o[1], lse[1], output_scale=scale)
