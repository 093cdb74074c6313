"""Packed sequences: each as if it were alone, empty ones too; what is refused, and by what name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated, load, reference, store  # noqa: E402
from attngen.ops import default_config  # noqa: E402
from attngen.spec_attention import AttentionFwd, AttentionVarlen  # noqa: E402
from attngen.variant import Variant, parse  # noqa: E402
from attngen.verify import verify  # noqa: E402

NAMES = [
    "attention_varlen_d16_fp16_m16_n16_w1_s1",
    "attention_varlen_d16_fp16_causal_m16_n32_w1_s1",
    "attention_varlen_d24_dv40_bf16_causal_window_softcap_alibi_sinks_m16_n16_w1_s1",
    "attention_varlen_d16_fp32_window_softcap_alibi_sinks_m32_n16_w1_s1",
    "attention_varlen_d32_fp32_causal_sinks_m32_n16_w1_s1",
    "attention_varlen_d72_bf16_alibi_m16_n16_w1_s1",
]


def built_dense(folder: Path) -> Any:
    """The dense kernel that has the tile of the packed one which calls without a folder end in."""
    tile = default_config(AttentionVarlen(head_dim=64, dtype="fp16", causal=True))
    variant = Variant(AttentionFwd(head_dim=64, dtype="fp16", causal=True), tile)
    store.write(variant, folder)
    return load(variant.name, [folder])


def cumulative(device: str, *lengths: int, dtype: Any = torch.int32) -> Any:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=dtype, device=device)


def packed(device: str, queries: int, keys: int, *, heads: int = 4, d: int = 64) -> list[Any]:
    """q, k and v in float16, for two KV heads."""
    shapes = [(queries, heads, d), (keys, 2, d), (keys, 2, d)]
    generator = torch.manual_seed(0)
    return [torch.randn(s, generator=generator).to(device, torch.float16) for s in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, tmp_path: Path, name: str) -> None:
    variant = parse(name)
    store.write(variant, tmp_path)
    report = verify(load(name, [tmp_path]), variant, device)
    assert not report.failed, str(report)


def test_each_sequence_has_the_bits_of_the_dense_kernel(device: str, tmp_path: Path) -> None:
    """A row does not know its batch mates: not their number, their lengths, nor their values."""
    queries, keys = (3, 65, 0, 1, 130), (64, 70, 9, 200, 130)
    q, k, v = packed(device, sum(queries), sum(keys))
    cu_q, cu_kv = cumulative(device, *queries), cumulative(device, *keys)
    o, lse = attngen.attention_varlen(q, k, v, cu_q, cu_kv, 130, 200, causal=True, return_lse=True)
    dense = built_dense(tmp_path)
    for b in range(5):
        rows, columns = slice(*cu_q[b : b + 2].tolist()), slice(*cu_kv[b : b + 2].tolist())
        alone = dense.attention_fwd(q[None, rows], k[None, columns], v[None, columns])
        assert torch.equal(o[rows], alone[0][0])
        assert torch.equal(lse[:, rows], alone[1][0])


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(0, 50)), max_size=9), st.integers(0, 40))
@settings(settings.get_profile("fixtures"), max_examples=15)
def test_every_row_has_a_tile_and_its_own_sequence(
    device: str, tmp_path: Path, queries: list[int], trailing: int
) -> None:
    """One key a sequence, whose value is the sequence's number: o tells which one a row found."""
    variant = parse("attention_varlen_d16_fp32_m16_n16_w1_s1")
    store.write(variant, tmp_path)
    number = torch.arange(1.0, len(queries) + 1, device=device)
    q = torch.zeros((sum(queries) + trailing, 1, 16), device=device)
    v = number[:, None, None].repeat(1, 1, 16)
    lengths = cumulative(device, *queries), cumulative(device, *[1] * len(queries))
    out = torch.full_like(q, torch.nan)
    load(variant.name, [tmp_path]).attention_varlen(q, v, v, *lengths, 50, 1, out=out)
    expected = [b + 1.0 for b, n in enumerate(queries) for _ in range(n)] + [0.0] * trailing
    assert out[:, 0, 0].tolist() == expected


@pytest.mark.parametrize("longest", [(0, 0), (5, 9), (4000, 4000)])
def test_the_bounds_of_the_lengths_change_nothing(device: str, longest: tuple[int, int]) -> None:
    q, k, v = packed(device, 7, 12)
    lengths = cumulative(device, 5, 2), cumulative(device, 9, 3)
    expected = attngen.attention_varlen(q, k, v, *lengths, 5, 9, causal=True)
    assert torch.equal(attngen.attention_varlen(q, k, v, *lengths, *longest, causal=True), expected)


@pytest.mark.parametrize("name", NAMES[:2])
def test_lengths_out_of_range_are_cut(device: str, tmp_path: Path, name: str) -> None:
    """They are on the device, where no launcher sees them: no row outside a tensor is read."""
    store.write(parse(name), tmp_path)
    kernel = load(name, [tmp_path])
    q, k, v = packed(device, 40, 50, d=16)

    def call(queries: tuple[int, ...], keys: tuple[int, ...], dtype: Any = torch.int32) -> Any:
        bounds = [torch.tensor(x, dtype=dtype, device=device) for x in (queries, keys)]
        return kernel.attention_varlen(q, k, v, *bounds, 40, 50)

    right = call((0, 17, 40), (0, 20, 50))
    for keys in ((0, 20, 51), (0, 20, 2**31 - 1), (-1, 20, 50), (-(2**31), 20, 10**6)):
        assert all(map(torch.equal, right, call((0, 17, 40), keys)))
    for queries in ((0, 17, 41), (0, 17, 2**31 - 1), (-1, 17, 40)):
        assert all(map(torch.equal, right, call(queries, (0, 20, 50))))
    far = 2**40 + 3
    assert all(map(torch.equal, right, call((0, 17, far), (-far, 20, far), torch.int64)))
    # Bounds that fall: a sequence that ends before it begins has no keys, or no rows.
    right = call((0, 17, 40), (20, 20, 20))
    assert all(map(torch.equal, right, call((0, 17, 40), (20, 5, -7))))
    assert all(map(torch.equal, right, call((0, 17, 40), (far, far - 2, -far), torch.int64)))


@given(
    st.lists(st.integers(-(2**40), 2**40) | st.integers(-60, 60), min_size=1, max_size=4),
    st.lists(st.integers(-(2**40), 2**40) | st.integers(-60, 60), min_size=4, max_size=4),
)
@example(queries=[32 - 2**31], keys=[0] * 4)  # tiles times BLOCK_M just beyond int32
@example(queries=[-(2**35)], keys=[0] * 4)
@settings(settings.get_profile("fixtures"), max_examples=25)
def test_no_bounds_lead_out_of_the_tensors(
    device: str, tmp_path: Path, queries: list[int], keys: list[int]
) -> None:
    """What they give is not said; the interpreter, which runs this, refuses stray addresses."""
    store.write(parse(NAMES[0]), tmp_path)
    kernel = load(NAMES[0], [tmp_path])
    tensors = packed(device, 40, 50, d=16)
    bounds = [torch.tensor(x, device=device) for x in (queries, keys[: len(queries)])]
    kernel.attention_varlen(*tensors, *bounds, 40, 50)


def _joined(cached: Any, new: Any, cu_cached: Any, cu: Any) -> Any:
    """The rows of each sequence, the cached ones before the new ones, as numpy."""
    spans = [
        part
        for b in range(len(cu) - 1)
        for part in (cached[cu_cached[b] : cu_cached[b + 1]], new[cu[b] : cu[b + 1]])
    ]
    return torch.cat(spans).cpu().numpy()


def test_chunked_prefill_in_which_one_request_misses_the_prefix_cache(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As engines do it: the cached part not causal, the chunk causal, both states merged."""
    store.write(parse("attention_varlen_d64_fp16_m16_n16_w1_s1"), tmp_path)
    monkeypatch.setenv("ATTNGEN_KERNELS", str(tmp_path))
    chunks, cached = (5, 20, 1), (17, 0, 40)
    q, k, v = packed(device, sum(chunks), sum(chunks))
    _, k_cached, v_cached = packed(device, 1, sum(cached))
    cu, cu_cached = cumulative(device, *chunks), cumulative(device, *cached)
    state: dict[str, Any] = {"return_lse": True}
    prefix = attngen.attention_varlen(q, k_cached, v_cached, cu, cu_cached, 20, 40, **state)
    suffix = attngen.attention_varlen(q, k, v, cu, cu, 20, 20, causal=True, **state)
    missed = slice(5, 25)
    assert (prefix[1][:, missed] == -torch.inf).all() and not prefix[0][missed].any()
    o, _ = reference.merge_state(*(x.double().cpu().numpy() for x in (*prefix, *suffix)))
    assert np.array_equal(o[missed], suffix[0][missed].double().cpu().numpy())
    joined = (_joined(*both, cu_cached, cu) for both in ((k_cached, k), (v_cached, v)))
    keys = [a + b for a, b in zip(chunks, cached, strict=True)]
    lengths = cu.cpu().numpy(), cumulative("cpu", *keys).numpy()
    expected, _ = reference.attention_varlen(q.cpu().numpy(), *joined, *lengths, causal=True)
    np.testing.assert_allclose(o, expected, atol=2e-3)


def test_not_generated_has_the_command(device: str) -> None:
    q, k, v = packed(device, 3, 3, d=24)
    cu = cumulative(device, 3)
    command = "attngen build --op attention_varlen --head-dim 24 --dtype fp16 --no-causal --softcap"
    with pytest.raises(NotGenerated, match=command):
        attngen.attention_varlen(q, k, v, cu, cu, 3, 3, softcap=2.0)


@pytest.mark.parametrize("feature", ["bias", "mask"])
def test_no_tensor_of_scores(device: str, feature: str) -> None:
    q, k, v = packed(device, 3, 3)
    cu = cumulative(device, 3)
    value = torch.zeros((3, 3), dtype=torch.bool if feature == "mask" else torch.float32)
    with pytest.raises(InvalidSpec, match=f"{feature}: got True, allowed with attention_varlen"):
        attngen.attention_varlen(q, k, v, cu, cu, 3, 3, **{feature: value.to(device)})


Call = dict[str, Any]
Bad = tuple[Callable[[Call], Call], type[Exception], str]

BAD: dict[str, Bad] = {
    "q of four dimensions": (
        lambda c: {"q": c["q"][None]},
        ValueError,
        r"q: got shape .*, allowed is \[total, heads, head_dim\]",
    ),
    "no tensor": (lambda c: {"k": [1.0]}, TypeError, "k: got list, allowed is a torch.Tensor"),
    "another dtype": (lambda c: {"v": c["v"].float()}, TypeError, "v: got torch.float32"),
    "fewer rows of v": (lambda c: {"v": c["v"][1:]}, ValueError, r"v: got shape \(11, 2, 64\)"),
    "strided columns": (
        lambda c: {"k": c["k"].repeat_interleave(2, 2)[..., ::2]},
        ValueError,
        "k: got last-dimension stride 2",
    ),
    "heads 3 over 2": (lambda c: {"q": c["q"][:, :3]}, ValueError, "heads_q: got 3"),
    "float lengths": (
        lambda c: {"cu_seqlens_q": c["cu_seqlens_q"].float()},
        TypeError,
        "cu_seqlens_q: got torch.float32, allowed are int32, int64",
    ),
    "int16 lengths": (
        lambda c: {"cu_seqlens_kv": c["cu_seqlens_kv"].short()},
        TypeError,
        "cu_seqlens_kv: got torch.int16, allowed are int32, int64",
    ),
    "a list of lengths": (
        lambda c: {"cu_seqlens_q": [0, 5, 7]},
        TypeError,
        "cu_seqlens_q: got list, allowed is a torch.Tensor",
    ),
    "lengths on another device": (
        lambda c: {"cu_seqlens_kv": c["cu_seqlens_kv"].to("meta")},
        TypeError,
        "cu_seqlens_kv: got device meta",
    ),
    "no lengths at all": (
        lambda c: {"cu_seqlens_q": c["cu_seqlens_q"][:0]},
        ValueError,
        r"cu_seqlens_q: got shape \(0,\), allowed is \[batch \+ 1\]",
    ),
    "lengths of two dimensions": (
        lambda c: {"cu_seqlens_q": c["cu_seqlens_q"][None]},
        ValueError,
        r"cu_seqlens_q: got shape \(1, 3\), allowed is \[batch \+ 1\]",
    ),
    "lengths for another batch": (
        lambda c: {"cu_seqlens_kv": c["cu_seqlens_kv"][:2]},
        ValueError,
        r"cu_seqlens_kv: got shape \(2,\), allowed is \(3,\)",
    ),
    "strided lengths": (
        lambda c: {"cu_seqlens_q": c["cu_seqlens_q"].repeat_interleave(2)[::2]},
        ValueError,
        "cu_seqlens_q: got last-dimension stride 2, allowed is 1",
    ),
    "a negative bound": (lambda c: {"max_seqlen_q": -1}, ValueError, "max_seqlen_q: got -1"),
    "a bound of 2**28": (lambda c: {"max_seqlen_kv": 2**28}, ValueError, "max_seqlen_kv: got 268"),
    "a bound of 1.5": (lambda c: {"max_seqlen_kv": 1.5}, TypeError, "max_seqlen_kv: got 1.5"),
    "offsets for another batch": (
        lambda c: {"causal_offset": c["cu_seqlens_q"]},
        ValueError,
        r"causal_offset: got shape \(3,\), allowed is \(2,\)",
    ),
    "out of another shape": (lambda c: {"out": c["q"][1:]}, ValueError, "out: got shape"),
    "out of another dtype": (lambda c: {"out": c["q"].float()}, TypeError, "out: got torch.float"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_names_the_argument(device: str, what: str) -> None:
    spoil, error, told = BAD[what]
    q, k, v = packed(device, 7, 12)
    call = {"q": q, "k": k, "v": v, "max_seqlen_q": 5, "max_seqlen_kv": 9, "causal": True}
    call |= {"cu_seqlens_q": cumulative(device, 5, 2), "cu_seqlens_kv": cumulative(device, 9, 3)}
    with pytest.raises(error, match=told):
        attngen.attention_varlen(**call | spoil(call))
