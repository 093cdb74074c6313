"""Decode kernels: features and tiles, splits that change nothing, bits that no batch mate moves."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated, load, runtime_decode, store  # noqa: E402
from attngen.ops import default_config  # noqa: E402
from attngen.tiles_decode import wide_config  # noqa: E402
from attngen.variant import Variant, parse  # noqa: E402
from attngen.verify import verify  # noqa: E402

NAMES = [
    "attention_decode_d64_fp16_causal_window_softcap_alibi_sinks_m16_n32_w4_s2",
    "attention_decode_d64_bf16_causal_window_softcap_alibi_sinks_paged_m16_n16_w4_s2",
    "attention_decode_d32_bf16_window_sinks_paged_m16_n32_w4_s2",
    "attention_decode_d16_fp32_causal_m16_n16_w4_s2",
    "attention_decode_d16_fp32_alibi_paged_m16_n16_w4_s2",
    # Head dims that are no power of two, and v of another width than q and k.
    "attention_decode_d8_fp16_m16_n16_w4_s2",
    "attention_decode_d72_bf16_causal_paged_m16_n16_w4_s2",
    "attention_decode_d112_dv40_fp16_m16_n32_w4_s2",
    "attention_decode_d64_dv96_bf16_sinks_m16_n16_w4_s2",
    # More rows than the group has.
    "attention_decode_d32_fp16_m64_n16_w4_s2",
]
DENSE = "attention_decode_d32_bf16_m16_n16_w4_s2"
PAGED = "attention_decode_d32_bf16_paged_m16_n16_w4_s2"


def built(name: str, folder: Path) -> ModuleType:
    store.write(parse(name), folder)
    return load(name, [folder])


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, tmp_path: Path, name: str) -> None:
    report = verify(built(name, tmp_path), parse(name), device)
    assert not report.failed, str(report)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(DENSE, tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(PAGED, tmp_path_factory.mktemp("paged"))


def drawn(device: str, *shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().to(device)


@pytest.mark.parametrize("splits", [{"split_size": 32}, {"split_size": 24}, {"num_splits": 1}])
def test_a_row_has_the_same_bits_whatever_its_batch_mates(
    device: str, dense: ModuleType, splits: dict[str, int]
) -> None:
    """Alone, among five, and beside a mate of eight times its length."""
    q, k, v = (drawn(device, 5, n, h, 32, seed=n) for n, h in ((1, 4), (100, 2), (100, 2)))
    lengths = torch.tensor([100, 7, 0, 64, 33], dtype=torch.int32, device=device)
    together, lse = dense.attention_decode(q, k, v, seqlens_kv=lengths, **splits)
    longer = torch.cat((drawn(device, 5, 300, 2, 32, seed=9), k), 1).roll(100, 1)
    for b, length in enumerate(lengths.tolist()):
        row = [x[b : b + 1] for x in (q, k[:, :length], v[:, :length])]
        alone, lse_alone = dense.attention_decode(*row, **splits)
        assert torch.equal(alone[0], together[b]) and torch.equal(lse_alone[0], lse[b])
    among, _ = dense.attention_decode(q, longer, longer, seqlens_kv=lengths.clone().fill_(400))
    assert among.isfinite().all()
    mixed = lengths.clone()
    mixed[1] = 400
    stretched = [torch.cat((x, x, x, x), 1) for x in (k, v)]
    beside, _ = dense.attention_decode(q, *stretched, seqlens_kv=mixed, **splits)
    for b in (0, 2, 3, 4):
        assert torch.equal(beside[b], together[b])


@pytest.mark.parametrize("page_size", [1, 7, 16, 48])
@pytest.mark.parametrize("splits", [{"split_size": 32}, {"num_splits": 3}, {}])
def test_pages_give_the_bits_of_a_dense_cache(
    device: str, dense: ModuleType, paged: ModuleType, page_size: int, splits: dict[str, int]
) -> None:
    q, k, v = (drawn(device, 2, n, h, 32, seed=h) for n, h in ((2, 6), (96, 2), (96, 2)))
    lengths = torch.tensor([96, 35], dtype=torch.int32, device=device)
    wide = -(-96 // page_size)
    table = torch.randperm(2 * wide, generator=torch.Generator().manual_seed(1)).to(torch.int32)
    table = table.view(2, wide).to(device)
    caches = []
    for x in (k, v):
        rows = torch.full((2, wide * page_size, 2, 32), torch.nan, dtype=x.dtype, device=device)
        rows[:, :96] = x
        rows[1, 35:] = torch.nan
        cache = torch.full_like(rows, torch.nan).view(2 * wide, page_size, 2, 32)
        cache[table.long().flatten()] = rows.view(2 * wide, page_size, 2, 32)
        caches.append(cache)
    o, lse = dense.attention_decode(q, k, v, seqlens_kv=lengths, **splits)
    p, lse_p = paged.attention_decode(q, *caches, block_table=table, seqlens_kv=lengths, **splits)
    if splits or page_size == 48 or 96 % page_size == 0:
        assert torch.equal(o, p) and torch.equal(lse, lse_p)
    torch.testing.assert_close(o, p)


@pytest.mark.parametrize("splits", [{"split_size": 32}, {"num_splits": 1}])
def test_a_sink_moves_no_bit_among_batch_mates(
    device: str, tmp_path: Path, splits: dict[str, int]
) -> None:
    """One split is finished by the kernel, several by the merge: the same arithmetic, and bits."""
    module = built("attention_decode_d32_bf16_sinks_m16_n16_w4_s2", tmp_path)
    q, k, v = (drawn(device, 3, n, h, 32, seed=n) for n, h in ((1, 4), (100, 2), (100, 2)))
    sinks = torch.tensor([0.7, -3.0, 5.0, -math.inf], device=device)
    lengths = torch.tensor([30, 100, 0], dtype=torch.int32, device=device)
    together, lse = module.attention_decode(q, k, v, sinks=sinks, seqlens_kv=lengths, **splits)
    for b, length in enumerate(lengths.tolist()):
        row = [x[b : b + 1] for x in (q, k[:, :length], v[:, :length])]
        alone, lse_alone = module.attention_decode(*row, sinks=sinks, **splits)
        assert torch.equal(alone[0], together[b]) and torch.equal(lse_alone[0], lse[b])


def test_lengths_out_of_range_are_cut(device: str, dense: ModuleType) -> None:
    q, k = drawn(device, 3, 1, 2, 32), drawn(device, 3, 20, 1, 32)
    lengths = torch.tensor([20, 0, 5], dtype=torch.int32, device=device)
    right = dense.attention_decode(q, k, k, seqlens_kv=lengths)
    for wild in (
        torch.tensor([2**30, -4, 5], dtype=torch.int32, device=device),
        torch.tensor([2**40, -(2**40), 5], dtype=torch.int64, device=device),
        torch.tensor([99, 1, -7, 1, 5, 1], dtype=torch.int64, device=device)[::2],
    ):
        assert all(map(torch.equal, right, dense.attention_decode(q, k, k, seqlens_kv=wild)))


@given(
    num_tiles=st.integers(1, 10_000),
    seqlen_kv=st.integers(0, 2**27),
    processors=st.integers(1, 200),
)
def test_the_splits_that_are_chosen(num_tiles: int, seqlen_kv: int, processors: int) -> None:
    """Never none, never more than there are blocks, one where the tiles keep memory busy."""
    module = attngen.load("attention_decode_d128_bf16_m16_n32_w2_s4")
    splits = module.choose_num_splits(num_tiles, seqlen_kv, processors)
    assert 1 <= splits <= max(1, math.ceil(seqlen_kv / 32)) and splits <= 256
    programs = module.PROGRAMS_A_PROCESSOR * processors
    if num_tiles >= programs:
        assert splits == 1
    elif seqlen_kv >= 2**20 and num_tiles * 256 >= 8 * programs:
        # The last of the waves in which the programs run is nearly full.
        assert num_tiles * splits >= 0.7 * math.ceil(num_tiles * splits / programs) * programs


WRONG = [
    ({"num_splits": -1}, ValueError, "num_splits: got -1"),
    ({"num_splits": 1.5}, TypeError, "num_splits: got 1.5"),
    ({"num_splits": True}, TypeError, "num_splits: got True"),
    ({"split_size": -16}, ValueError, "split_size: got -16"),
    ({"split_size": 16, "num_splits": 2}, ValueError, "split_size: got 16"),
    ({"block_table": "flat"}, ValueError, "block_table: got shape (6,)"),
    ({"block_table": "float"}, TypeError, "block_table: got torch.float32"),
    ({"block_table": "batch"}, ValueError, "block_table: got shape (1, 3)"),
    ({"block_table": "meta"}, TypeError, "block_table: got device meta"),
    ({"block_table": None}, TypeError, "block_table: got NoneType"),
    ({"seqlens_kv": "float"}, TypeError, "seqlens_kv: got torch.float32"),
    ({"max_seqlen_kv": 49}, ValueError, "max_seqlen_kv: got 49, allowed is 0 to the table's 48"),
    ({"seqlens_kv": "batch"}, ValueError, "seqlens_kv: got shape (1,)"),
    ({"k_cache": "empty pages"}, ValueError, "k_cache: got page size 0"),
    ({"max_seqlen_kv": 16.5}, TypeError, "max_seqlen_kv: got 16.5"),
    ({"max_seqlen_kv": True}, TypeError, "max_seqlen_kv: got True"),
    ({"sm_scale": math.nan}, ValueError, "sm_scale: got nan"),
    ({"out": "one row for all"}, ValueError, "out: got strides (0, 128, 32, 1)"),
    ({"q": "heads"}, ValueError, "heads_q: got 3"),
    ({"v_cache": "pages"}, ValueError, "v_cache: got shape"),
]
SPOILT = {
    "flat": lambda x: x.flatten(),
    "float": lambda x: x.float(),
    "batch": lambda x: x[:1],
    "meta": lambda x: x.to("meta"),
    "empty pages": lambda x: x[:, :0],
    "heads": lambda x: x[:, :, :3],
    "pages": lambda x: x[:2],
}


@pytest.mark.parametrize(("change", "error", "words"), WRONG)
def test_a_wrong_call_is_refused_by_name(
    device: str, paged: ModuleType, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    integers = {"dtype": torch.int32, "device": device}
    call: dict[str, Any] = {
        "q": drawn(device, 2, 1, 4, 32),
        "k_cache": drawn(device, 6, 16, 2, 32),
        "v_cache": drawn(device, 6, 16, 2, 32),
        "block_table": torch.arange(6, **integers).view(2, 3),
        "seqlens_kv": torch.tensor([40, 3], **integers),
    }
    paged.attention_decode(**call)
    for name, value in change.items():
        if value == "one row for all":
            call["out"] = torch.empty_like(call["q"][:1]).expand(2, -1, -1, -1)
            continue
        call[name] = SPOILT[value](call[name]) if value in SPOILT else value
    if change.get("k_cache") == "empty pages":
        call["v_cache"] = call["v_cache"][:, :0]
    with pytest.raises(error) as caught:
        paged.attention_decode(**call)
    assert str(caught.value).startswith(words)


def test_more_splits_than_blocks_are_no_splits_at_all(device: str, dense: ModuleType) -> None:
    """Their number is cut on the host: no launch has more, and no offset of theirs wraps."""
    q, k = drawn(device, 1, 1, 2, 32), drawn(device, 1, 40, 1, 32)
    right = dense.attention_decode(q, k, k, num_splits=3)
    for num_splits in (4, 1000, 2**31 - 1):
        assert all(map(torch.equal, right, dense.attention_decode(q, k, k, num_splits=num_splits)))


def test_many_rows_take_the_wide_tile_where_it_is_built(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = parse(DENSE).spec
    monkeypatch.setenv(store.PATH_VARIABLE, str(tmp_path))
    for config in (default_config(spec), wide_config(spec)):
        store.write(Variant(spec, config), tmp_path)
    runtime_decode._kernel.cache_clear()
    options = {"device": torch.device(device), "wide": True}
    kernel = runtime_decode._kernel(32, 32, torch.bfloat16, **options)
    assert kernel.BLOCK_M.value == 64
    q, k = drawn(device, 1, 17, 4, 32), drawn(device, 1, 40, 2, 32)
    wide = attngen.attention_decode(q, k, k)
    assert torch.equal(wide, kernel.attention_decode(q, k, k)[0])
    narrow = torch.cat([attngen.attention_decode(x, k, k) for x in q.split(8, 1)], 1)
    torch.testing.assert_close(wide, narrow, atol=2.0**-7, rtol=2.0**-7)
    runtime_decode._kernel.cache_clear()


def test_the_run_time_face(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(DENSE, tmp_path)
    monkeypatch.setenv(store.PATH_VARIABLE, str(tmp_path))
    runtime_decode._kernel.cache_clear()
    q, k = drawn(device, 2, 1, 4, 32), drawn(device, 2, 40, 2, 32)
    o, lse = attngen.attention_decode(q, k, k, return_lse=True, num_splits=2)
    expected, lse_expected = attngen.reference.attention(*(x.double().cpu() for x in (q, k, k)))
    torch.testing.assert_close(o.double().cpu(), torch.from_numpy(expected), atol=2e-2, rtol=0)
    torch.testing.assert_close(lse.double().cpu(), torch.from_numpy(lse_expected))
    # One query at the end of its keys sees them all: no causal kernel is needed.
    assert torch.equal(attngen.attention_decode(q, k, k, causal=True, num_splits=2), o)
    with pytest.raises(NotGenerated, match="--op attention_decode --head-dim 32 --dtype bf16 --ca"):
        attngen.attention_decode(q, k, k, causal=True, causal_offset=3)
    with pytest.raises(InvalidSpec, match="mask: got a tensor"):
        attngen.attention_decode(q, k, k, mask=torch.ones(1, dtype=torch.bool))
    with pytest.raises(InvalidSpec, match=r"dtype: got torch.float64"):
        attngen.attention_decode(q.double(), k.double(), k.double())
    runtime_decode._kernel.cache_clear()
