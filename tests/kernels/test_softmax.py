"""Row softmax: every algorithm and feature held to the reference, and the laws of softmax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra import numpy as hnp  # noqa: E402

from attngen import load, reference, store  # noqa: E402
from attngen.cases_softmax import Case  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.verify import verify  # noqa: E402
from attngen.verify_softmax import roundings, verdict_of  # noqa: E402

NAMES = [
    "softmax_c40_fp16_single_log_lse_mask_scaled_m4_w1_s1",
    "softmax_c1_bf16_single_lse_m2_w1_s1",
    "softmax_c64_fp32_single_scaled_out_fp16_m16_w4_s1",
    "softmax_c64_bf16_single_log_mask_out_fp32_m1_w1_s1",
    "softmax_c64_fp32_single_lse_out_bf16_m2_w1_s1",
    "softmax_c512_bf16_online_log_lse_mask_scaled_n256_w1_s3",
    "softmax_c512_fp32_online_lse_n128_w1_s1",
    "softmax_c512_fp16_online_mask_out_fp32_n512_w2_s1",
    "softmax_c512_bf16_safe_lse_mask_scaled_n256_w1_s1",
    "softmax_c512_fp16_safe_log_n512_w1_s2",
    "softmax_c512_fp32_split_log_lse_mask_scaled_n64_w1_s1",
    "softmax_c512_fp16_split_lse_n32_w1_s1",
    "softmax_c512_bf16_split_out_fp32_n1_w1_s1",
    "softmax_topk_c512_k5_bf16_n256_w1_s1",
    "softmax_topk_c512_k5_fp32_n128_w1_s1",
    "softmax_topk_c512_k1_bf16_n512_w2_s1",
    "softmax_topk_c512_k12_fp16_n256_w1_s1",
]
ONE_OF_EACH = [
    "softmax_c64_fp32_single_lse_m4_w1_s1",
    "softmax_c64_fp32_online_lse_n128_w1_s1",
    "softmax_c64_fp32_safe_lse_n128_w1_s1",
    "softmax_c64_fp32_split_lse_n16_w1_s1",
]
laws = settings(max_examples=15)
ROWS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(0, 64)),
    elements=st.integers(-4096, 4096).map(lambda i: i / 64) | st.just(-np.inf),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, device: str) -> Path:
    path: Path = tmp_path_factory.mktemp("kernels")
    for name in (*NAMES, *ONE_OF_EACH):
        store.write(parse(name), path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, folder: Path, name: str) -> None:
    report = verify(load(name, [folder]), parse(name), device)
    assert not report.failed, str(report)


def run(name: str, folder: Path, device: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, lse = load(name, [folder]).softmax(torch.from_numpy(x).to(device))
    return y.cpu().numpy(), lse.cpu().numpy()


@pytest.mark.parametrize("name", ONE_OF_EACH)
@laws
@given(x=ROWS)
def test_a_row_sums_to_one_or_is_empty(device: str, folder: Path, name: str, x: Any) -> None:
    y, _ = run(name, folder, device, x)
    bound, _ = reference.softmax_budget(x, out_dtype="fp32", **roundings(parse(name), x.shape[1]))
    expected = (x > -np.inf).any(axis=-1).astype(np.float64)
    assert (np.abs(y.astype(np.float64).sum(axis=-1) - expected) <= bound.sum(axis=-1)).all()


@pytest.mark.parametrize("name", ONE_OF_EACH)
@laws
@given(x=ROWS, shift=st.integers(-2048, 2048))
def test_a_common_shift_changes_no_bit(
    device: str, folder: Path, name: str, x: Any, shift: int
) -> None:
    """Entries are multiples of 1/64 and the shift is whole, so that every difference is exact."""
    y, lse = run(name, folder, device, x)
    again, shifted = run(name, folder, device, x + np.float32(shift))
    np.testing.assert_array_equal(y, again)
    np.testing.assert_allclose(shifted, lse + shift, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("name", ONE_OF_EACH)
@laws
@given(x=ROWS, random=st.randoms(use_true_random=False))
def test_a_permutation_permutes(device: str, folder: Path, name: str, x: Any, random: Any) -> None:
    order = list(range(x.shape[1]))
    random.shuffle(order)
    y, lse = run(name, folder, device, x)
    permuted, same = run(name, folder, device, np.ascontiguousarray(x[:, order]))
    y_bound, lse_bound = reference.softmax_budget(
        x, out_dtype="fp32", **roundings(parse(name), x.shape[1])
    )
    assert (np.abs(permuted - y[:, order]) <= 2 * y_bound[:, order]).all()
    seen = np.isfinite(lse)
    assert (np.isfinite(same) == seen).all()
    assert (np.abs(same[seen] - lse[seen]) <= 2 * lse_bound[seen]).all()


@laws
@given(x=ROWS, k=st.integers(1, 5))
def test_the_largest_are_those_of_the_reference(device: str, folder: Path, x: Any, k: int) -> None:
    """Multiples of 1/64 between -64 and 64 are exact in float32, and often equal."""
    module = load("softmax_topk_c512_k5_fp32_n128_w1_s1", [folder])
    values, indices, _ = module.softmax_topk(torch.from_numpy(x).to(device), k)
    expected = reference.softmax_topk(x, k)
    np.testing.assert_array_equal(values.cpu().numpy(), expected[0])
    np.testing.assert_array_equal(indices.cpu().numpy(), expected[1])


def test_the_checks_see_a_wrong_row(device: str) -> None:
    """The verdict fails for one unit in the last place too many, and for NaN."""
    variant = parse("softmax_c64_fp32_single_lse_m4_w1_s1")
    x = np.random.default_rng(0).standard_normal((64, 50)).astype(np.float32).astype(np.float64)
    y, lse = reference.safe_softmax(x), reference.logsumexp(x)
    assert verdict_of(variant, x, y, lse, {}).passed
    for spoiled in (y * (1 + 1e-4), np.where(y == y.max(), np.nan, y), y[::-1]):
        assert not verdict_of(variant, x, spoiled, lse, {}).passed
    assert not verdict_of(variant, x, y, lse + 1e-3, {}).passed


def test_a_case_is_the_same_in_every_process() -> None:
    from attngen.cases_softmax import inputs

    variant = parse("softmax_c64_fp32_single_lse_m4_w1_s1")
    x, _ = inputs(variant, Case("a whole tile", (3, 4)))
    assert x[0, 0] == pytest.approx(inputs(variant, Case("a whole tile", (3, 4)))[0][0, 0])
