import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attngen.reference import attention, attention_paged, attention_varlen, cascade_attention

laws = settings(max_examples=40)
lengths = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=4)


def cumulative(x):
    return np.concatenate([[0], np.cumsum(x)]).astype(np.int32)


def draw_packed(seed, pairs, heads_q=4, heads_kv=2):
    rng = np.random.default_rng(seed)
    cu_q, cu_kv = cumulative([a for a, _ in pairs]), cumulative([b for _, b in pairs])
    q = rng.normal(size=(cu_q[-1], heads_q, 6))
    k = rng.normal(size=(cu_kv[-1], heads_kv, 6))
    v = rng.normal(size=(cu_kv[-1], heads_kv, 3))
    return rng, q, k, v, cu_q, cu_kv


def options(rng, pairs, heads_q=4):
    """Options of varlen, and for each sequence those of attention."""
    batch = len(pairs)
    shape = (batch, heads_q, max(a for a, _ in pairs), max(b for _, b in pairs))
    bias, mask = rng.normal(size=shape), rng.random(shape) < 0.7
    slopes, offset = rng.random((batch, heads_q)), rng.integers(-2, 5, batch)
    sinks = rng.normal(size=heads_q)
    common = {"causal": True, "window_size": (3, 1), "softcap": 4.0, "sinks": sinks}
    packed = {"bias": bias, "mask": mask, "alibi_slopes": slopes, "causal_offset": offset}
    each = [
        common
        | {
            "bias": bias[b : b + 1, :, :a, :n],
            "mask": mask[b : b + 1, :, :a, :n],
            "alibi_slopes": slopes[b],
            "causal_offset": int(offset[b]),
        }
        for b, (a, n) in enumerate(pairs)
    ]
    return common | packed, each


@laws
@given(st.integers(0, 2**32 - 1), lengths, st.booleans())
def test_varlen_is_attention_of_each_sequence(seed, pairs, full):
    rng, q, k, v, cu_q, cu_kv = draw_packed(seed, pairs)
    packed, each = (
        options(rng, pairs) if full and pairs else ({"causal": True}, [{"causal": True}] * 9)
    )
    o, lse = attention_varlen(q, k, v, cu_q, cu_kv, **packed)
    assert (o.shape, lse.shape) == ((len(q), 4, 3), (4, len(q)))
    for b, one in zip(range(len(pairs)), each, strict=False):
        rows, keys = slice(*cu_q[b : b + 2]), slice(*cu_kv[b : b + 2])
        o_b, lse_b = attention(q[None, rows], k[None, keys], v[None, keys], **one)
        np.testing.assert_array_equal(o[rows], o_b[0])
        np.testing.assert_array_equal(lse[:, rows], lse_b[0])


def paged(rng, k, v, cu_kv, page_size):
    """The same keys in shuffled pages; every slot that is not used holds NaN."""
    needed = [-(-int(n) // page_size) for n in np.diff(cu_kv)]
    pages = rng.permutation(sum(needed) + 2)
    k_cache = np.full((len(pages), page_size, *k.shape[1:]), np.nan)
    v_cache = np.full((len(pages), page_size, *v.shape[1:]), np.nan)
    table = np.full((len(needed), max(needed, default=0) + 1), -1, np.int32)
    used = iter(pages)
    for b, count in enumerate(needed):
        for n in range(count):
            table[b, n] = next(used)
            tokens = slice(
                cu_kv[b] + n * page_size, min(cu_kv[b] + (n + 1) * page_size, cu_kv[b + 1])
            )
            k_cache[table[b, n], : len(k[tokens])] = k[tokens]
            v_cache[table[b, n], : len(v[tokens])] = v[tokens]
    return k_cache, v_cache, table, np.diff(cu_kv)


@laws
@given(st.integers(0, 2**32 - 1), lengths, st.integers(1, 5))
def test_paged_is_varlen(seed, pairs, page_size):
    rng, q, k, v, cu_q, cu_kv = draw_packed(seed, pairs)
    cache = paged(rng, k, v, cu_kv, page_size)
    expected = attention_varlen(q, k, v, cu_q, cu_kv, causal=True, window_size=(2, -1))
    got = attention_paged(q, *cache, cu_seqlens_q=cu_q, causal=True, window_size=(2, -1))
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


def test_paged_decodes_one_query_a_sequence():
    rng, _, k, v, _, cu_kv = draw_packed(0, [(1, 3), (1, 0), (1, 7)])
    q = rng.normal(size=(3, 4, 6))
    o, lse = attention_paged(q, *paged(rng, k, v, cu_kv, 4), causal=True)
    expected = attention_varlen(q, k, v, np.arange(4), cu_kv)
    np.testing.assert_array_equal(o, expected[0])
    np.testing.assert_array_equal(lse, expected[1])
    assert (lse[:, 1] == -np.inf).all()


def test_rows_after_the_last_sequence_are_empty():
    _, q, k, v, cu_q, cu_kv = draw_packed(0, [(2, 3), (1, 2)])
    q = np.concatenate([q, q])
    o, lse = attention_varlen(q, k, v, cu_q, cu_kv)
    np.testing.assert_array_equal(o[3:], 0.0)
    np.testing.assert_array_equal(lse[:, 3:], -np.inf)


@st.composite
def cascades(draw):
    """Three levels: one root, some branches, some leaves; leaf lengths (queries, keys)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    branches = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))  # leaves of each
    leaves = [(int(rng.integers(0, 4)), int(rng.integers(0, 6))) for _ in range(sum(branches))]
    queries = np.array([a for a, _ in leaves])
    ends = np.cumsum(branches)
    cu_leaf = cumulative(queries)
    cu_q = [np.array([0, queries.sum()]), cu_leaf[np.concatenate([[0], ends])], cu_leaf]
    keys = [[int(rng.integers(0, 7))], rng.integers(0, 5, len(branches)), [n for _, n in leaves]]
    levels = []
    for n in range(3):
        cu_kv = cumulative(keys[n])
        k = rng.normal(size=(cu_kv[-1], 2, 6))
        v = rng.normal(size=(cu_kv[-1], 2, 3))
        levels.append((k, v, cu_q[n], cu_kv))
    q = rng.normal(size=(queries.sum(), 4, 6))
    owner = [np.zeros(len(leaves), int), np.repeat(np.arange(len(branches)), branches)]
    owner.append(np.arange(len(leaves)))
    attn = {
        "causal": draw(st.booleans()),
        "window_size": draw(st.sampled_from([(-1, -1), (4, -1), (2, 1), (-1, 0)])),
        "softcap": draw(st.sampled_from([None, 3.0])),
        "sinks": draw(st.sampled_from([None, rng.normal(size=4)])),
        "alibi_slopes": draw(st.sampled_from([None, rng.random(4)])),
        "sm_scale": draw(st.sampled_from([None, -0.5])),
    }
    return q, levels, owner, attn


@laws
@given(cascades(), st.booleans())
def test_a_cascade_is_attention_over_the_joined_keys(cascade, in_pages):
    q, levels, owner, attn = cascade
    given_levels = list(levels)
    if in_pages:
        k, v, cu_q, cu_kv = levels[1]
        given_levels[1] = (*paged(np.random.default_rng(0), k, v, cu_kv, 3), cu_q)
    o, lse = cascade_attention(q, given_levels, **attn)
    cu_leaf = levels[-1][2]
    for leaf in range(len(cu_leaf) - 1):
        rows = slice(*cu_leaf[leaf : leaf + 2])
        parts = [slice(*cu[owner[n][leaf] :][:2]) for n, (_, _, _, cu) in enumerate(levels)]
        k, v = (
            np.concatenate([level[x][part] for level, part in zip(levels, parts, strict=True)])
            for x in (0, 1)
        )
        expected = attention(q[None, rows], k[None], v[None], **attn)
        np.testing.assert_allclose(o[rows], expected[0][0], rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(lse[:, rows], expected[1][0], rtol=1e-11, atol=1e-13)


def test_bad_layouts():
    _, q, k, v, cu_q, cu_kv = draw_packed(0, [(2, 3), (1, 2)])
    with pytest.raises(ValueError, match=r"cu_seqlens_q: got \[0, 4\]; must start at 0"):
        attention_varlen(q, k, v, [0, 4], [0, 5])
    with pytest.raises(ValueError, match=r"cu_seqlens_kv: got \[0, 3, 2\]"):
        attention_varlen(q, k, v, cu_q, [0, 3, 2])
    with pytest.raises(ValueError, match=r"cu_seqlens_kv: got shape \(2,\); must be \[3\]"):
        attention_varlen(q, k, v, cu_q, [0, 5])
    with pytest.raises(TypeError, match="cu_seqlens_q: got dtype float64"):
        attention_varlen(q, k, v, [0.0, 3.0], [0, 5])
    with pytest.raises(ValueError, match="heads_q: got 4; must be a multiple of heads_kv = 3"):
        attention_varlen(q[:0], k[:0, [0, 0, 0]], v[:0, [0, 0, 0]], [0], [0])
    with pytest.raises(ValueError, match="mask: got shape"):
        attention_varlen(q, k, v, cu_q, cu_kv, mask=np.ones((3, 1, 1, 1), bool))
    k_cache, v_cache = np.zeros((2, 4, 2, 6)), np.zeros((2, 4, 2, 3))
    with pytest.raises(ValueError, match=r"block_table: got \[0, 2\] for sequence 0 of 5 tokens"):
        attention_paged(q[:1], k_cache, v_cache, [[0, 2]], [5])
    with pytest.raises(ValueError, match=r"seqlens_kv: got \[9\]; each must be from 0 to"):
        attention_paged(q[:1], k_cache, v_cache, [[0, 1]], [9])
    with pytest.raises(ValueError, match=r"block_table: got shape \(2,\)"):
        attention_paged(q[:1], k_cache, v_cache, [0, 1], [5])
    with pytest.raises(ValueError, match="k_cache: got page_size 0"):
        attention_paged(q[:1], k_cache[:, :0], v_cache[:, :0], [[0]], [0])
    with pytest.raises(ValueError, match="v_cache: got"):
        attention_paged(q[:1], k_cache, v_cache[:1], [[0]], [0])


def test_bad_cascades():
    _, q, k, v, cu_q, cu_kv = draw_packed(0, [(2, 3), (1, 2)])
    last = (k, v, cu_q, cu_kv)
    with pytest.raises(ValueError, match="levels: got none"):
        cascade_attention(q, [])
    with pytest.raises(ValueError, match=r"levels\[0\]: got 3 entries"):
        cascade_attention(q, [last[:3]])
    with pytest.raises(
        ValueError, match=r"levels\[0\]: cu_seqlens_q ends at 2; must be total_q = 3"
    ):
        cascade_attention(q, [(k, v, [0, 2], [0, 5]), last])
    with pytest.raises(
        ValueError, match=r"levels\[0\]: a group ends at query row 1, inside a group"
    ):
        cascade_attention(q, [(k, v, [0, 1, 3], cu_kv), last])
