"""The run-time face: which kernel is called, and what is said where none can be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated, finder, reference, runtime, store  # noqa: E402
from attngen.variant import parse  # noqa: E402

SMALL = "attention_fwd_d16_fp32_causal_window_sinks_m16_n16_w4_s1"


@pytest.fixture(autouse=True)
def fresh_lookups(device: str) -> None:
    runtime.forget()


def tensors(device: str, *, d: int = 32, dv: int | None = None, dtype: Any = None) -> list[Any]:
    dtype = dtype or torch.float32
    shapes = [(2, 5, 4, d), (2, 7, 2, d), (2, 7, 2, dv or d)]
    return [torch.randn(s, generator=torch.manual_seed(0)).to(device, dtype) for s in shapes]


def test_o_alone_or_with_lse_and_into_out(device: str) -> None:
    q, k, v = tensors(device)
    out = torch.empty_like(q)
    o = attngen.attention(q, k, v, causal=True, out=out)
    assert o is out
    again, lse = attngen.attention(q, k, v, causal=True, return_lse=True)
    assert torch.equal(o, again)
    expected, expected_lse = reference.attention(*(x.cpu().numpy() for x in (q, k, v)), causal=True)
    assert torch.allclose(o.cpu().double(), torch.from_numpy(expected), atol=1e-5)
    assert torch.allclose(lse.cpu().double(), torch.from_numpy(expected_lse), atol=1e-5)
    assert lse.shape == (2, 4, 5) and lse.dtype == torch.float32


def test_kernels_of_other_folders_come_first(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = tensors(device, d=16)
    options = {"causal": True, "window_size": (2, 0), "sinks": torch.zeros(4, device=device)}
    with pytest.raises(NotGenerated) as error:
        attngen.attention(q, k, v, **options)
    command = (
        "attngen build --op attention_fwd --head-dim 16 --dtype fp32 --causal --window --sinks"
    )
    assert command in str(error.value)
    store.write(parse(SMALL), tmp_path)
    monkeypatch.setenv("ATTNGEN_KERNELS", f"/nowhere:{tmp_path}")
    runtime.forget()
    o, lse = attngen.attention(q, k, v, **options, return_lse=True)
    numpy_options = {**options, "sinks": options["sinks"].cpu().numpy()}
    expected, expected_lse = reference.attention(
        *(x.cpu().numpy() for x in (q, k, v)), **numpy_options
    )
    assert torch.allclose(o.cpu().double(), torch.from_numpy(expected), atol=1e-5)
    assert torch.allclose(lse.cpu().double(), torch.from_numpy(expected_lse), atol=1e-5)


def test_the_command_of_not_generated_builds_what_was_missing(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from attngen.cli import main

    monkeypatch.setattr(store, "in_checkout", lambda: False)
    monkeypatch.setenv("ATTNGEN_KERNELS", str(tmp_path))
    q, k, v = tensors(device, d=24, dv=40)
    with pytest.raises(NotGenerated) as error:
        attngen.attention(q, k, v)
    words = str(error.value).split("attngen build ")[1].split()
    assert CliRunner().invoke(main, ["build", *words]).exit_code == 0
    runtime.forget()
    assert attngen.attention(q, k, v).shape == (2, 5, 4, 40)


def test_load_of_what_is_not_built(device: str) -> None:
    with pytest.raises(NotGenerated, match=f"attngen build {SMALL}"):
        attngen.load(SMALL)
    with pytest.raises(InvalidSpec, match="name: got"):
        attngen.load("nothing")


def bad(q: Any, k: Any, v: Any) -> dict[str, tuple[Any, type[Exception], str]]:
    """What is wrong: (positional and keyword arguments, the error, what it says)."""
    f16 = q.to(torch.float16)
    return {
        "head dim 7": ((q[..., :7], k[..., :7], v, {}), InvalidSpec, "head_dim: got 7"),
        "float64": (((q.double()), k.double(), v.double(), {}), InvalidSpec, "dtype: got"),
        "mixed dtypes": ((f16, k, v, {}), TypeError, "k: got torch.float32"),
        "heads 5 over 2": (
            (q[:, :, [0, 0, 0, 0, 0]], k, v, {}),
            ValueError,
            "heads_q: got 5, allowed is a multiple of heads_kv",
        ),
        "no KV heads": ((q, k[:, :, :0], v[:, :, :0], {}), ValueError, "heads_q: got 4"),
        "head dims differ": ((q, k[..., :16], v, {}), ValueError, "k: got shape"),
        "batches differ": ((q, k[:1], v, {}), ValueError, "k: got shape"),
        "lengths of k and v": ((q, k, v[:, :3], {}), ValueError, "v: got shape"),
        "three dimensions": ((q[0], k, v, {}), ValueError, "q: got shape"),
        "no tensor": ((q.cpu().numpy(), k, v, {}), TypeError, "q: got ndarray"),
        "strided columns": (
            (q, torch.cat([k, k], -1)[..., ::2], v, {}),
            ValueError,
            "k: got last-dimension stride 2, allowed is 1",
        ),
        "window below -1": ((q, k, v, {"window_size": (-2, 0)}), ValueError, "window_size: got"),
        "window of one": ((q, k, v, {"window_size": (3,)}), TypeError, "window_size: got"),
        "window of floats": ((q, k, v, {"window_size": (1.0, 2)}), TypeError, "window_size: got"),
        "softcap 0": ((q, k, v, {"softcap": 0.0}), ValueError, "softcap: got 0.0"),
        "softcap -1": ((q, k, v, {"softcap": -1.0}), ValueError, "softcap: got -1.0"),
        "softcap 1e39": (
            (q, k, v, {"softcap": 1e39}),
            ValueError,
            "softcap: got 1e.39, allowed is",
        ),
        "softcap 1e-300": (
            (q, k, v, {"softcap": 1e-300}),
            ValueError,
            r"softcap: got 1e-300, allowed is from 2\*\*-126 to less than 2\*\*128",
        ),
        "softcap NaN": ((q, k, v, {"softcap": math.nan}), ValueError, "softcap: got nan"),
        "NaN scale": ((q, k, v, {"sm_scale": math.nan}), ValueError, "sm_scale: got nan"),
        "infinite scale": ((q, k, v, {"sm_scale": math.inf}), ValueError, "sm_scale: got inf"),
        "offset of the wrong type": (
            (q, k, v, {"causal": True, "causal_offset": 1.5}),
            TypeError,
            "causal_offset: got 1.5",
        ),
        "offsets of the wrong shape": (
            (q, k, v, {"causal": True, "causal_offset": torch.zeros(3).int().to(q.device)}),
            ValueError,
            r"causal_offset: got shape \(3,\), allowed is \(2,\)",
        ),
        "offsets of the wrong dtype": (
            (q, k, v, {"causal": True, "causal_offset": torch.zeros(2).to(q.device)}),
            TypeError,
            "causal_offset: got torch.float32",
        ),
        "out of another shape": ((q, k, v, {"out": q[:, :1]}), ValueError, "out: got shape"),
        "out of another dtype": ((q, k, v, {"out": f16}), TypeError, "out: got torch.float16"),
        "another device": ((q, k.to("meta"), v, {}), TypeError, "k: got device meta"),
    }


@pytest.mark.parametrize("what", bad(*(torch.zeros(2, 7, 4, 32),) * 3))
def test_bad_input_names_the_argument_before_anything_runs(device: str, what: str) -> None:
    (q, k, v, options), error, told = bad(*tensors(device))[what]
    with pytest.raises(error, match=told):
        attngen.attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("feature", "value", "error", "told"),
    [
        ("bias", torch.zeros(3, 7), ValueError, "bias: got shape"),
        ("bias", torch.zeros(5, 7).long(), TypeError, "bias: got torch.int64"),
        ("mask", torch.zeros(5, 7), TypeError, "mask: got torch.float32, allowed is torch.bool"),
        ("mask", torch.zeros(4, 7).bool(), ValueError, "mask: got shape"),
        ("sinks", torch.zeros(3), ValueError, r"sinks: got shape \(3,\), allowed is \(4,\)"),
        ("alibi_slopes", torch.zeros(4).half(), TypeError, "alibi_slopes: got torch.float16"),
        ("alibi_slopes", torch.zeros(3), ValueError, "alibi_slopes: got shape"),
    ],
)
def test_bad_tensors_of_features(
    device: str, feature: str, value: Any, error: type[Exception], told: str
) -> None:
    q, k, v = tensors(device, d=128, dtype=torch.bfloat16)
    with pytest.raises(error, match=told):
        attngen.attention(q, k, v, causal=True, **{feature: value.to(device)})


def test_cpu_tensors_without_the_interpreter(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = tensors("cpu")
    module = finder.find(parse("attention_fwd_d32_fp32_m32_n32_w8_s2").spec)
    monkeypatch.setattr(module, "_INTERPRETED", False)
    with pytest.raises(TypeError, match="q: got device cpu, allowed is a GPU"):
        attngen.attention(q, k, v)
