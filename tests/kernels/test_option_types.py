"""Options of the wrong type, and an out that overlaps itself: refused by name, everywhere."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import load, runtime, store  # noqa: E402
from attngen.variant import parse  # noqa: E402

OPS = ("attention_fwd", "attention_varlen", "attention_paged", "attention_decode")

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a tensor as scale": ({"sm_scale": torch.tensor(0.5)}, "sm_scale: got Tensor, allowed is a nu"),
    "a word as scale": ({"sm_scale": "0.5"}, "sm_scale: got str, allowed is a number"),
    "a switch as scale": ({"sm_scale": True}, "sm_scale: got bool, allowed is a number"),
    "a tensor as softcap": ({"softcap": torch.tensor(3.0)}, "softcap: got Tensor, allowed is a n"),
    "a word as softcap": ({"softcap": "30"}, "softcap: got str, allowed is a number"),
    "one number as window": ({"window_size": 16}, "window_size: got 16, allowed are two ints"),
    "a window of three": ({"window_size": (1, 2, 3)}, r"window_size: got \(1, 2, 3\), allowed are"),
    "a window of floats": ({"window_size": (1.0, 2)}, r"window_size: got \(1.0, 2\), allowed are"),
    "a list as sinks": ({"sinks": [0.0, 0.0]}, "sinks: got list, allowed is a torch.Tensor"),
    "a number as slopes": ({"alibi_slopes": 0.5}, "alibi_slopes: got float, allowed is a torch"),
}


def arguments(op: str, device: str) -> dict[str, Any]:
    """A right call of an operator, without the options of features."""
    x = torch.zeros((5, 2, 16), device=device)
    cu = torch.tensor([0, 5], dtype=torch.int32, device=device)
    if op in ("attention_fwd", "attention_decode"):
        return {"q": x[None], "k": x[None], "v": x[None]}
    if op == "attention_varlen":
        longest = {"max_seqlen_q": 5, "max_seqlen_kv": 5}
        return {"q": x, "k": x, "v": x, "cu_seqlens_q": cu, "cu_seqlens_kv": cu, **longest}
    pages = {"block_table": cu[None, :1], "seqlens_kv": cu[1:], "cu_seqlens_q": cu}
    return {"q": x, "k_cache": x[None], "v_cache": x[None], **pages}


def features(device: str) -> dict[str, Any]:
    numbers = torch.zeros(2, device=device)
    return {"window_size": (3, 0), "softcap": 2.0, "alibi_slopes": numbers, "sinks": numbers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels")
    for op in OPS:
        for words in ("_window_softcap_alibi_sinks", ""):
            store.write(parse(f"{op}_d16_fp32{words}_m16_n16_w1_s1"), path)
    return path


def launcher(op: str, folder: Path, words: str = "_window_softcap_alibi_sinks") -> Any:
    module: ModuleType = load(f"{op}_d16_fp32{words}_m16_n16_w1_s1", [folder])
    return getattr(module, op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("what", WRONG)
def test_a_launcher_names_an_option_of_the_wrong_type(
    device: str, folder: Path, op: str, what: str
) -> None:
    change, told = WRONG[what]
    call = arguments(op, device) | features(device)
    launcher(op, folder)(**call)
    with pytest.raises(TypeError, match=told):
        launcher(op, folder)(**call | change)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("what", WRONG)
def test_the_run_time_face_names_an_option_of_the_wrong_type(
    device: str, folder: Path, monkeypatch: pytest.MonkeyPatch, op: str, what: str
) -> None:
    change, told = WRONG[what]
    monkeypatch.setenv(store.PATH_VARIABLE, str(folder))
    runtime.forget()
    call = arguments(op, device) | features(device)
    function = getattr(attngen, op.removesuffix("_fwd"))
    function(**call)
    with pytest.raises(TypeError, match=told):
        function(**call | change)
    runtime.forget()


@pytest.mark.parametrize(
    ("window_size", "error"), [(16, TypeError), ((1.5, 0), TypeError), ((-2, 0), ValueError)]
)
def test_a_cascade_names_a_window_of_the_wrong_type(
    device: str, window_size: Any, error: type[Exception]
) -> None:
    level = tuple(arguments("attention_varlen", device).values())[1:5]
    q = arguments("attention_varlen", device)["q"]
    with pytest.raises(error, match="window_size: got"):
        attngen.cascade_attention(q, [level, level], window_size=window_size)


@pytest.mark.parametrize("op", OPS)
def test_an_out_whose_rows_overlap_is_refused(device: str, folder: Path, op: str) -> None:
    call = arguments(op, device)
    shape = call["q"].shape
    axis = shape.index(5)
    for dimension in (axis, axis + 1):
        out = torch.zeros_like(call["q"]).narrow(dimension, 0, 1).expand(shape)
        with pytest.raises(ValueError, match=r"out: got strides \(.*\), allowed are none of 0"):
            launcher(op, folder, "")(**call, out=out)
    # What has no second row may have any stride.
    call["out"] = torch.zeros_like(call["q"])
    if axis:
        call["out"] = call["out"][0].expand(1, -1, -1, -1)
    o, _ = launcher(op, folder, "")(**call)
    assert o is call["out"]
