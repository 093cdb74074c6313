"""Paged caches: any page size and layout, junk wherever no token is; what is refused, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, NotGenerated, load, store  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.verify import verify  # noqa: E402

NAMES = [
    "attention_paged_d16_fp16_m16_n16_w1_s1",
    "attention_paged_d16_fp16_causal_m16_n32_w1_s1",
    "attention_paged_d24_dv40_bf16_causal_window_softcap_alibi_sinks_m16_n16_w1_s1",
    "attention_paged_d16_fp32_window_softcap_alibi_sinks_m32_n16_w1_s1",
    "attention_paged_d32_fp32_causal_sinks_m32_n16_w1_s1",
    "attention_paged_d72_bf16_alibi_m16_n16_w1_s1",
]
D = 64


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, tmp_path: Path, name: str) -> None:
    variant = parse(name)
    store.write(variant, tmp_path)
    report = verify(load(name, [tmp_path]), variant, device)
    assert not report.failed, str(report)


def cumulative(device: str, *lengths: int) -> Any:
    return torch.tensor([0, *lengths], device=device).cumsum(0).int()


def paged(device: str, page_size: int, *keys: int) -> tuple[Any, ...]:
    """k, v [total, 2, D]; their caches, in pages from the last to the first; table, lengths."""
    generator = torch.manual_seed(0)
    counts = [math.ceil(n / page_size) for n in keys]
    shape = (sum(counts) + 1, page_size, 2, D)
    caches = [torch.full(shape, math.nan, dtype=torch.float16, device=device) for _ in "kv"]
    table = torch.full((len(keys), max(counts) + 1), -1, dtype=torch.int32, device=device)
    free, rows = sum(counts), []
    for b, n in enumerate(keys):
        rows.append(torch.randn((2, n, 2, D), generator=generator).half().to(device))
        for page in range(counts[b]):
            table[b, page] = free
            for cache, x in zip(caches, rows[b], strict=True):
                part = x[page * page_size : (page + 1) * page_size]
                cache[free, : len(part)] = part
            free -= 1
    k, v = torch.cat(rows, 1)
    return k, v, *caches, table, torch.tensor(keys, dtype=torch.int32, device=device)


def queries(device: str, rows: int, heads: int = 4) -> Any:
    return torch.randn((rows, heads, D), generator=torch.manual_seed(1)).half().to(device)


@pytest.mark.parametrize("page_size", [1, 7, 12, 16, 64, 192])
def test_pages_have_the_bits_of_packed_rows(
    device: str, page_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the keys lie changes no bit: the same tile over packed rows gives the same."""
    store.write(parse("attention_varlen_d64_fp16_causal_m64_n32_w4_s3"), tmp_path)
    packed = load("attention_varlen_d64_fp16_causal_m64_n32_w4_s3", [tmp_path])
    keys, rows = (70, 5, 193, 64), (3, 5, 66, 0)
    k, v, *cache = paged(device, page_size, *keys)
    q, cu_q = queries(device, sum(rows)), cumulative(device, *rows)
    options: dict[str, Any] = {"causal": True, "return_lse": True}
    o, lse = attngen.attention_paged(q, *cache, cu_seqlens_q=cu_q, max_seqlen_q=66, **options)
    same = packed.attention_varlen(q, k, v, cu_q, cumulative(device, *keys), 66, 193)
    assert torch.equal(o, same[0]) and torch.equal(lse, same[1])


def test_one_query_each(device: str) -> None:
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40, 1, 33)
    q = queries(device, 3)
    cache = (k_cache, v_cache, table, seqlens)
    each = attngen.attention_paged(q, *cache, cu_seqlens_q=cumulative(device, 1, 1, 1), causal=True)
    splits = [{"num_splits": n} for n in (None, 0, 1, 2, 5)] + [{"split_size": 16}]
    for split in splits:
        out = torch.full_like(q, torch.nan)
        o, lse = attngen.attention_paged(q, *cache, causal=True, **split, out=out, return_lse=True)
        assert o is out and lse.shape == (4, 3)
        torch.testing.assert_close(o, each, atol=1e-3, rtol=0)  # two roundings to float16


def test_a_table_of_any_row_stride(device: str) -> None:
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40, 1, 33)
    q = queries(device, 3)
    expected = attngen.attention_paged(q, k_cache, v_cache, table, seqlens, causal=True)
    wide = torch.full((3, 3 * table.shape[1]), 10**6, dtype=torch.int64, device=device)
    wide[:, 2 : 2 + table.shape[1]] = table
    for given in (wide[:, 2 : 2 + table.shape[1]], table.repeat_interleave(2, 0)[::2]):
        o = attngen.attention_paged(q, k_cache, v_cache, given, seqlens, causal=True)
        assert torch.equal(o, expected)
    shared = table[:1].expand(3, -1)
    o = attngen.attention_paged(q, k_cache, v_cache, shared, seqlens[:1].repeat(3), causal=True)
    assert torch.equal(o[0], expected[0])


def test_a_cache_without_pages(device: str) -> None:
    none = torch.empty((0, 16, 2, D), dtype=torch.float16, device=device)
    table = torch.empty((2, 0), dtype=torch.int32, device=device)
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    o, lse = attngen.attention_paged(
        queries(device, 2), none, none, table, lengths, causal=True, return_lse=True
    )
    assert not o.any() and (lse == -math.inf).all()


def test_not_generated_has_the_command(device: str) -> None:
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40)
    cache = (k_cache, v_cache, table, seqlens)
    for op, options, cu_q in (
        ("attention_paged", "--sinks", cumulative(device, 1)),
        ("attention_decode", "--sinks --paged", None),
    ):
        command = f"attngen build --op {op} --head-dim 64 --dtype fp16 --no-causal {options}"
        with pytest.raises(NotGenerated, match=command):
            attngen.attention_paged(
                queries(device, 1), *cache, cu_seqlens_q=cu_q, sinks=torch.zeros(4)
            )


Call = dict[str, Any]
Bad = tuple[Callable[[Call], Call], type[Exception], str]

BAD: dict[str, Bad] = {
    "pages of size 0": (
        lambda c: {"k_cache": c["k_cache"][:, :0], "v_cache": c["v_cache"][:, :0]},
        ValueError,
        "k_cache: got page size 0, allowed is 1 and up",
    ),
    "a cache of three dimensions": (
        lambda c: {"k_cache": c["k_cache"][0]},
        ValueError,
        r"k_cache: got shape .*, allowed is \[num_pages, page_size, heads_kv, head_dim\]",
    ),
    "v of other pages": (
        lambda c: {"v_cache": c["v_cache"][:, :8]},
        ValueError,
        r"v_cache: got shape \(8, 8, 2, 64\), allowed is \(8, 16, 2, 64\)",
    ),
    "a cache of another dtype": (
        lambda c: {"v_cache": c["v_cache"].bfloat16()},
        TypeError,
        "v_cache: got torch.bfloat16",
    ),
    "strided columns": (
        lambda c: {"k_cache": c["k_cache"].repeat_interleave(2, 3)[..., ::2]},
        ValueError,
        "k_cache: got last-dimension stride 2",
    ),
    "heads 3 over 2": (lambda c: {"q": c["q"][:, :3]}, ValueError, "heads_q: got 3"),
    "a table of one dimension": (
        lambda c: {"block_table": c["block_table"][0]},
        ValueError,
        r"block_table: got shape \(4,\), allowed is \[batch, max_pages\]",
    ),
    "a table of floats": (
        lambda c: {"block_table": c["block_table"].float()},
        TypeError,
        "block_table: got torch.float32, allowed are int32, int64",
    ),
    "a table by columns": (
        lambda c: {"block_table": c["block_table"].t().contiguous().t()},
        ValueError,
        "block_table: got last-dimension stride 3, allowed is 1",
    ),
    "a table on another device": (
        lambda c: {"block_table": c["block_table"].to("meta")},
        TypeError,
        "block_table: got device meta",
    ),
    "a table that is too narrow": (
        lambda c: {"max_seqlen_kv": 65},
        ValueError,
        r"block_table: got room for 4 pages of 16 keys, allowed is room for max_seqlen_kv \(65\)",
    ),
    "room for 2**28 keys": (
        lambda c: {x: c[x][:, :1].expand(-1, 2**26, -1, -1) for x in ("k_cache", "v_cache")},
        ValueError,
        "max_seqlen_kv: got 268435456, allowed is from 0 to less than",
    ),
    "lengths for another batch": (
        lambda c: {"seqlens_kv": c["seqlens_kv"][:2]},
        ValueError,
        r"seqlens_kv: got shape \(2,\), allowed is \(3,\)",
    ),
    "float lengths": (
        lambda c: {"seqlens_kv": c["seqlens_kv"].float()},
        TypeError,
        "seqlens_kv: got torch.float32",
    ),
    "strided lengths": (
        lambda c: {"seqlens_kv": c["seqlens_kv"].repeat_interleave(2)[::2]},
        ValueError,
        "seqlens_kv: got last-dimension stride 2",
    ),
    "rows for another batch": (
        lambda c: {"q": c["q"][:2], "cu_seqlens_q": None},
        ValueError,
        r"block_table: got shape \(3, 4\), allowed is \(2, max_pages\)",
    ),
    "cumulative lengths for another batch": (
        lambda c: {"cu_seqlens_q": c["seqlens_kv"]},
        ValueError,
        r"cu_seqlens_q: got shape \(3,\), allowed is \(4,\)",
    ),
    "a negative bound": (lambda c: {"max_seqlen_kv": -1}, ValueError, "max_seqlen_kv: got -1"),
    "-1 splits": (lambda c: {"num_splits": -1}, ValueError, "num_splits: got -1"),
    "2 splits": (lambda c: {"num_splits": 2}, InvalidSpec, "num_splits: got 2, allowed with"),
    "1.5 splits": (lambda c: {"num_splits": 1.5}, TypeError, "num_splits: got 1.5"),
    "splits of 256": (lambda c: {"split_size": 256}, InvalidSpec, "split_size: got 256, allowed"),
    "a bias": (lambda c: {"bias": torch.zeros(1)}, InvalidSpec, "bias: got True, allowed with"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_names_the_argument(device: str, what: str) -> None:
    spoil, error, told = BAD[what]
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40, 1, 33)
    call = {"q": queries(device, 3), "k_cache": k_cache, "v_cache": v_cache, "causal": True}
    call |= {"block_table": table, "seqlens_kv": seqlens}
    call |= {"cu_seqlens_q": cumulative(device, 1, 1, 1)}
    with pytest.raises(error, match=told):
        attngen.attention_paged(**call | spoil(call))


@pytest.mark.parametrize(
    "what",
    [
        "pages of size 0",
        "a cache of three dimensions",
        "v of other pages",
        "a cache of another dtype",
        "strided columns",
        "heads 3 over 2",
        "a table of one dimension",
        "a table of floats",
        "a table on another device",
        "lengths for another batch",
        "float lengths",
        "a negative bound",
        "-1 splits",
        "1.5 splits",
    ],
)
def test_bad_input_of_a_step_of_decode(device: str, what: str) -> None:
    spoil, error, told = BAD[what]
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40, 1, 33)
    call = {"q": queries(device, 3), "k_cache": k_cache, "v_cache": v_cache, "causal": True}
    call |= {"block_table": table, "seqlens_kv": seqlens}
    with pytest.raises(error, match=told):
        attngen.attention_paged(**call | spoil(call))


def test_a_step_of_decode_is_one_query_each(device: str) -> None:
    *_, k_cache, v_cache, table, seqlens = paged(device, 16, 40, 1, 33)
    cache = (k_cache, v_cache, table, seqlens)
    with pytest.raises(ValueError, match="max_seqlen_q: got 2, allowed without cu_seqlens_q is 1"):
        attngen.attention_paged(queries(device, 3), *cache, max_seqlen_q=2)
    with pytest.raises(InvalidSpec, match="mask: got a tensor"):
        attngen.attention_paged(queries(device, 3), *cache, mask=torch.ones(1, dtype=torch.bool))
    # Columns of the table and lengths of any stride are right here.
    strided = (table.t().contiguous().t(), seqlens.repeat_interleave(2)[::2])
    o = attngen.attention_paged(queries(device, 3), k_cache, v_cache, *strided, num_splits=2)
    assert torch.equal(o, attngen.attention_paged(queries(device, 3), *cache, num_splits=2))
