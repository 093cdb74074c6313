import math
from pathlib import Path

import numpy as np
import pytest

from attngen.reference import attention, online_attention, online_softmax, safe_softmax
from attngen.reference.narrow import NarrowState, narrow_recurrence
from attngen.reference.recurrence import finish, start, update

MATHEMATICS = Path(__file__).parents[2] / "docs" / "mathematics.md"

# Eight logits in four blocks of two; the third raises the running maximum from 3 to 8. v_j = j.
LOGITS = np.array([1.0, 2.0, 3.0, 0.0, 8.0, 5.0, 4.0, 7.0])
E = math.exp
M = [2.0, 3.0, 8.0, 8.0]
ALPHA = [0.0, E(-1), E(-5), 1.0]
L = [
    E(-1) + 1,
    E(-2) + E(-1) + 1 + E(-3),
    E(-7) + E(-6) + E(-5) + E(-8) + 1 + E(-3),
    E(-7) + E(-6) + E(-5) + E(-8) + 1 + E(-3) + E(-4) + E(-1),
]
ACC = [
    1.0,
    E(-1) + 2 + 3 * E(-3),
    E(-6) + 2 * E(-5) + 3 * E(-8) + 4 + 5 * E(-3),
    E(-6) + 2 * E(-5) + 3 * E(-8) + 4 + 5 * E(-3) + 6 * E(-4) + 7 * E(-1),
]


def worked_example():
    """The state after each block of two logits."""
    state = start(1, 1)
    for b in range(0, 8, 2):
        state = update(state, LOGITS[None, b : b + 2], np.arange(b, b + 2.0)[:, None])
        yield state


def test_the_worked_example_state_by_state():
    states = list(worked_example())
    for state, m, alpha, l, acc in zip(states, M, ALPHA, L, ACC, strict=True):
        assert state.m[0] == m
        assert state.alpha[0] == pytest.approx(alpha, rel=1e-15)
        assert state.l[0] == pytest.approx(l, rel=1e-15)
        assert state.acc[0, 0] == pytest.approx(acc, rel=1e-15)
    assert f"{states[2].alpha[0]:.7f}" == "0.0067379"
    o, lse = finish(states[-1])
    weights = safe_softmax(LOGITS)
    assert o[0, 0] == pytest.approx(weights @ np.arange(8), rel=1e-15)
    assert lse[0] == pytest.approx(math.log(np.exp(LOGITS).sum()), rel=1e-15)


def test_the_worked_example_stands_in_the_documentation():
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in MATHEMATICS.read_text(encoding="utf-8").splitlines()
        if line.startswith("| block ")
    ]
    header, *body = rows
    assert header == ["block", "logits", "m", "alpha", "l", "acc"]
    expected = [
        [
            f"block {n}",
            ", ".join(f"{x:g}" for x in LOGITS[2 * n - 2 : 2 * n]),
            f"{state.m[0]:g}",
            f"{state.alpha[0]:.7f}",
            f"{state.l[0]:.7f}",
            f"{state.acc[0, 0]:.7f}",
        ]
        for n, state in enumerate(worked_example(), start=1)
    ]
    assert body == expected


def test_the_numbers_of_the_worked_merge_stand_in_the_documentation():
    text = MATHEMATICS.read_text(encoding="utf-8")
    states = list(worked_example())
    o, lse = finish(states[-1])
    first, second = start(1, 1), start(1, 1)
    values = np.arange(8.0)[:, None]
    (o_a, lse_a) = finish(update(first, LOGITS[None, :4], values[:4]))
    (o_b, lse_b) = finish(update(second, LOGITS[None, 4:], values[4:]))
    for number in (o, lse, o_a, lse_a, o_b, lse_b):
        assert f"{number.item():.7f}" in text


def test_8192_logits_with_a_late_outlier():
    rng = np.random.default_rng(0)
    s = rng.normal(0, 3, 8192)
    s[4000] = 40.0
    v = rng.normal(size=(8192, 128))
    weights = safe_softmax(s)
    np.testing.assert_allclose(online_softmax(s, 64), weights, rtol=1e-12)

    state = start(1, 128)
    for b in range(0, 8192, 64):
        state = update(state, s[None, b : b + 64], v[b : b + 64])
    o, lse = finish(state)
    np.testing.assert_allclose(o[0], weights @ v, rtol=1e-12)
    np.testing.assert_allclose(lse[0], 40 + math.log(np.exp(s - 40).sum()), rtol=1e-12)

    # The same through the whole operator: head_dim 1, q = 1, k = s.
    q, k = np.ones((1, 1, 1, 1)), s[None, :, None, None]
    for f in (attention, lambda *a, **b: online_attention(*a, block_n=64, **b)):
        o, lse = f(q, k, v[None, :, None], sm_scale=1.0)
        np.testing.assert_allclose(o[0, 0, 0], weights @ v, rtol=1e-12)
        np.testing.assert_allclose(lse[0, 0, 0], 40 + math.log(np.exp(s - 40).sum()), rtol=1e-12)


def test_float32_state_is_enough():
    rng = np.random.default_rng(1)
    s, v = rng.normal(0, 3, 4096), rng.normal(size=(4096, 4))
    o, lse = narrow_recurrence(s, v, block_n=64)
    weights = safe_softmax(s)
    np.testing.assert_allclose(o, weights @ v, atol=1e-6)
    np.testing.assert_allclose(lse, math.log(np.exp(s).sum()), rtol=1e-6)


def test_m_in_fp16_becomes_infinite():
    # 65520 and above is infinity in fp16: every exp(s - m) is 0 and so is l.
    s, v = np.array([70000.0, 69999.0]), np.array([[1.0], [2.0]])
    assert narrow_recurrence(s, v, block_n=1)[0] == pytest.approx(1 + 1 / (1 + math.e), abs=1e-3)
    o, lse = narrow_recurrence(s, v, block_n=1, state=NarrowState(m="fp16"))
    assert np.isnan(o).all()
    assert np.isnan(lse)


def test_m_in_fp16_lets_a_narrow_p_overflow():
    # 32784 = 2^15 + 16 lies half way between two fp16 numbers and becomes 2^15: exp(16) > 65504.
    s, v = np.full(2, 32784.0), np.array([[1.0], [3.0]])
    assert narrow_recurrence(s, v, block_n=2, state=NarrowState(p="fp16"))[0] == 2.0
    o, lse = narrow_recurrence(s, v, block_n=2, state=NarrowState(m="fp16", p="fp16"))
    assert o == np.inf
    assert lse == pytest.approx(32784.69, abs=0.01)  # l is right: only P is lost


def test_l_in_fp16_stops_growing():
    # 2048 + 1 is 2048 in fp16: the sum of 4096 ones stays there, and o doubles in silence.
    s, v = np.zeros(4096), np.full((4096, 1), 3.0)
    assert narrow_recurrence(s, v, block_n=1)[0] == 3.0
    o, lse = narrow_recurrence(s, v, block_n=1, state=NarrowState(l="fp16"))
    assert o == 6.0
    assert lse == pytest.approx(math.log(2048))


def test_acc_in_fp16_overflows():
    # The mean is 1000, but the sum of 100 such values is beyond 65504.
    s, v = np.zeros(100), np.full((100, 1), 1000.0)
    o, lse = narrow_recurrence(s, v, block_n=10)
    assert o == 1000.0
    o, lse = narrow_recurrence(s, v, block_n=10, state=NarrowState(acc="fp16"))
    assert o == np.inf
    assert lse == pytest.approx(math.log(100))


def test_narrow_arguments():
    with pytest.raises(ValueError, match="m: got 'fp8'; must be one of fp16, bf16, fp32"):
        NarrowState(m="fp8")
    with pytest.raises(ValueError, match="v: got seqlen_kv 3; must be that of s, 2"):
        narrow_recurrence(np.zeros(2), np.zeros((3, 1)), block_n=1)
