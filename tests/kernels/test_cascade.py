"""Cascades: any number of levels, packed and paged, against attention over the joined keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import (  # noqa: E402
    InvalidSpec,
    runtime_cascade,
    runtime_decode,
    runtime_layouts,
    runtime_merge,
    store,
)
from attngen.reference import cascade_attention, error_budget  # noqa: E402
from attngen.variant import parse  # noqa: E402

D = 32
TILES = {"attention_varlen": "m16_n16_w1_s1", "attention_paged": "m16_n16_w1_s1"}
FEATURES = ("", "_causal", "_sinks", "_causal_sinks", "_softcap", "_causal_softcap")


@pytest.fixture(scope="module", autouse=True)
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The kernels of small tiles that the levels need, and the merges."""
    folder: Path = tmp_path_factory.mktemp("cascade")
    for op, tile in TILES.items():
        for features in FEATURES:
            store.write(parse(f"{op}_d{D}_bf16{features}_{tile}"), folder)
    for features in ("", "_softcap"):
        for layout in ("", "_paged"):
            store.write(
                parse(f"attention_decode_d{D}_bf16{features}{layout}_m16_n16_w1_s1"), folder
            )
    for op in ("merge_state", "merge_states"):
        store.write(parse(f"{op}_d{D}_bf16_m8_w1_s1"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.PATH_VARIABLE, str(folder))
        forget()
        yield
    forget()


def forget() -> None:
    runtime_layouts._kernel.cache_clear()
    runtime_merge._kernel.cache_clear()
    runtime_decode._kernel.cache_clear()


def rows(device: str, count: int, heads: int, seed: int) -> Any:
    return (
        torch.randn((count, heads, D), generator=torch.Generator().manual_seed(seed))
        .bfloat16()
        .to(device)
    )


def lengths(device: str, *counts: int) -> Any:
    return torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32, device=device)


def packed(device: str, queries: tuple[int, ...], keys: tuple[int, ...], seed: int) -> Any:
    k, v = (rows(device, sum(keys), 2, seed + i) for i in range(2))
    return k, v, lengths(device, *queries), lengths(device, *keys)


def paged(device: str, level: Any, page_size: int) -> Any:
    """A packed level in shuffled pages amid NaN."""
    k, v, cu_q, cu_kv = level
    counts = cu_kv.diff().tolist()
    wide = max(1, *(-(-n // page_size) for n in counts))
    order = torch.randperm(len(counts) * wide, generator=torch.Generator().manual_seed(3))
    table = order.to(device, torch.int32).view(len(counts), wide)
    caches = []
    for x in (k, v):
        cache = torch.full(
            (len(counts) * wide, page_size, 2, D), torch.nan, dtype=x.dtype, device=device
        )
        for b, count in enumerate(counts):
            for j in range(count):
                page = int(table[b, j // page_size])
                cache[page, j % page_size] = x[int(cu_kv[b]) + j]
        caches.append(cache)
    return *caches, table, cu_kv.diff().to(torch.int32), cu_q


def two_levels(device: str) -> Any:
    return [packed(device, (7, 5), (37, 20), 1), packed(device, (3, 4, 5), (9, 4, 17), 5)]


def three_levels(device: str) -> Any:
    return [
        packed(device, (12,), (40,), 1),
        packed(device, (7, 5), (0, 23), 5),
        packed(device, (3, 4, 5), (9, 4, 17), 9),
    ]


def hold(q: Any, levels: Any, o: Any, lse: Any, **options: Any) -> None:
    """Hold a result to the joined keys' budget, and each level's o to one more rounding.

    A level's o is rounded to bfloat16 before it is merged: 2^-8 of the largest |v| there is.
    """
    exact = [
        tuple(x.double().cpu().numpy() if x.is_floating_point() else x.cpu().numpy() for x in level)
        for level in levels
    ]
    sinks = options.pop("sinks", None)
    attn = {**options, "sinks": None if sinks is None else sinks.double().cpu().numpy()}
    numbers = q.double().cpu().numpy()
    expected, lse_expected = cascade_attention(numbers, exact, **attn)
    largest = max(np.nanmax(np.abs(level[1]), initial=0.0) for level in exact)
    keys = np.concatenate([np.nan_to_num(level[0]).reshape(-1, 2, D) for level in exact])[None]
    budget = {"operand_dtype": "bf16", "block_n": 16, "num_splits": len(levels)}
    bound, lse_bound = error_budget(
        numbers[None],
        keys,
        np.full_like(keys, largest),
        **budget,
        sm_scale=options.get("sm_scale"),
        softcap=options.get("softcap"),
    )
    got, got_lse = o.double().cpu().numpy(), lse.double().cpu().numpy()
    assert (np.abs(got - expected) <= bound.max() + 2.0**-8 * largest).all()
    assert (np.isinf(got_lse) == np.isinf(lse_expected)).all()
    seen = np.isfinite(lse_expected)
    assert (np.abs(got_lse - lse_expected)[seen] <= lse_bound.max()).all()


@pytest.mark.parametrize("make", [two_levels, three_levels], ids=lambda f: f.__name__)
@pytest.mark.parametrize("page_size", [None, 5, 16])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"sm_scale": 0.3}, {"softcap": 2.0, "causal": True}], ids=str
)
def test_a_cascade_is_attention_over_the_joined_keys(
    device: str, make: Any, page_size: int | None, options: dict[str, Any]
) -> None:
    q, levels = rows(device, 12, 4, 0), make(device)
    given = levels if page_size is None else [paged(device, level, page_size) for level in levels]
    out = torch.full_like(q, torch.nan)
    o, lse = attngen.cascade_attention(q, given, **options, return_lse=True, out=out)
    assert o is out
    hold(q, levels, o, lse, **options)
    o, lse = attngen.cascade_attention(q, given, **options, return_lse=True)
    assert torch.equal(o, out)


@pytest.mark.parametrize("make", [two_levels, three_levels], ids=lambda f: f.__name__)
def test_the_sink_counts_once(device: str, make: Any) -> None:
    q, sinks = rows(device, 12, 4, 0), torch.tensor([3.0, -1.0, 0.5, -math.inf], device=device)
    levels = make(device)
    o, lse = attngen.cascade_attention(q, levels, sinks=sinks, causal=True, return_lse=True)
    hold(q, levels, o, lse, sinks=sinks, causal=True)


def test_levels_may_be_of_both_kinds(device: str) -> None:
    q, levels = rows(device, 12, 4, 0), three_levels(device)
    mixed = [levels[0], paged(device, levels[1], 5), levels[2]]
    o, lse = attngen.cascade_attention(q, mixed, causal=True, return_lse=True)
    same, lse_same = attngen.cascade_attention(q, levels, causal=True, return_lse=True)
    assert torch.equal(o, same) and torch.equal(lse, lse_same)


@pytest.mark.parametrize("page_size", [None, 16])
def test_what_few_queries_all_share_is_a_step_of_decode(device: str, page_size: int | None) -> None:
    q, (level, _, last) = rows(device, 12, 4, 0), three_levels(device)
    given = level if page_size is None else paged(device, level, page_size)
    o = attngen.cascade_attention(q, [given, last], causal=True)
    k, v, *_ = level
    step, lse = attngen.attention_decode(q[None], k[None], v[None], return_lse=True)
    own, own_lse = attngen.cascade_attention(q, [last], causal=True, return_lse=True)
    assert torch.equal(o, attngen.merge_state(step[0], lse[0], own, own_lse)[0])


def test_what_many_queries_share_is_packed_attention(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, (level, _, last) = rows(device, 12, 4, 0), three_levels(device)
    step = attngen.cascade_attention(q, [level, last], causal=True)
    monkeypatch.setattr(runtime_cascade, "MOST_ROWS", 23)
    monkeypatch.setattr(runtime_cascade, "decode", None)
    packed_ = attngen.cascade_attention(q, [level, last], causal=True)
    torch.testing.assert_close(step, packed_, atol=2.0**-7, rtol=2.0**-7)


def test_a_last_level_of_one_query_each_is_a_step_of_decode(device: str) -> None:
    q, keys = rows(device, 3, 4, 0), (9, 4, 17)
    level = paged(device, packed(device, (1, 1, 1), keys, 9), 16)
    prefix = packed(device, (3,), (40,), 1)
    o, lse = attngen.cascade_attention(
        q, [prefix, level], causal=True, max_seqlen_q=1, return_lse=True
    )
    hold(q, [prefix, packed(device, (1, 1, 1), keys, 9)], o, lse, causal=True)
    alone = attngen.cascade_attention(q, [level], max_seqlen_q=1)
    assert torch.equal(alone, attngen.attention_paged(q, *level[:4]))
    # Two of three sequences have a query, so that not every row has a sequence of its own.
    two = (*level[:4], lengths(device, 1, 0, 1))
    o = attngen.cascade_attention(q[::2], [two], max_seqlen_q=1)
    torch.testing.assert_close(o, alone[::2], atol=2.0**-7, rtol=2.0**-7)
    with pytest.raises(ValueError, match="max_seqlen_q: got 0, allowed is an int from 1"):
        attngen.cascade_attention(q, [level], max_seqlen_q=0)


def test_one_level_is_varlen(device: str) -> None:
    q, level = rows(device, 12, 4, 0), packed(device, (3, 4, 5), (9, 4, 17), 9)
    o = attngen.cascade_attention(q, [level], causal=True)
    k, v, cu_q, cu_kv = level
    assert torch.equal(o, attngen.attention_varlen(q, k, v, cu_q, cu_kv, 5, 17, causal=True))


def test_a_prefix_that_nobody_has_changes_no_bit(device: str) -> None:
    q, level = rows(device, 12, 4, 0), packed(device, (3, 4, 5), (9, 4, 17), 9)
    none = packed(device, (12,), (0,), 1)
    o, lse = attngen.cascade_attention(q, [none, level], causal=True, return_lse=True)
    alone, lse_alone = attngen.cascade_attention(q, [level], causal=True, return_lse=True)
    assert torch.equal(o, alone) and torch.equal(lse, lse_alone)


@pytest.mark.parametrize(
    ("levels", "options", "error", "words"),
    [
        ([], {}, ValueError, "levels: got none"),
        ([(1, 2, 3)], {}, ValueError, r"levels\[0\]: got tuple of 3 entries"),
        (["abcd"], {}, ValueError, r"levels\[0\]: got str"),
        (None, {"window_size": (3, 0)}, InvalidSpec, r"window_size: got \(3, 0\)"),
        (None, {"alibi_slopes": torch.ones(4)}, InvalidSpec, "alibi_slopes: got a tensor"),
    ],
)
def test_a_wrong_cascade_is_refused_by_name(
    device: str, levels: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    given = two_levels(device) if levels is None else levels
    with pytest.raises(error, match=words):
        attngen.cascade_attention(rows(device, 12, 4, 0), given, **options)


def test_b10_a_shared_prefix_and_three_suffixes(device: str) -> None:
    """Suffixes of 1, 1 and 3 keys after a prefix of 8; then no prefix at all."""
    q = torch.zeros((5, 1, D), dtype=torch.bfloat16, device=device)
    k = torch.zeros((8, 1, D), dtype=torch.bfloat16, device=device)
    suffix = (k[:5], torch.zeros_like(k[:5]), *[lengths(device, 1, 1, 3)] * 2)
    prefix = (k, torch.ones_like(k), lengths(device, 5), lengths(device, 8))
    o, lse = attngen.cascade_attention(q, [prefix, suffix], causal=True, return_lse=True)
    counts = np.array([9, 9, 9, 10, 11])
    np.testing.assert_allclose(o[:, 0, 0].float().cpu(), 8 / counts, rtol=2.0**-8)
    np.testing.assert_allclose(lse[0].cpu(), np.log(counts), rtol=1e-6)
    none = (k[:0], k[:0], lengths(device, 5), lengths(device, 0))
    o, lse = attngen.cascade_attention(q, [none, suffix], causal=True, return_lse=True)
    assert not o.any()
    np.testing.assert_allclose(lse[0].cpu(), np.log([1, 1, 1, 2, 3]), atol=1e-6)
