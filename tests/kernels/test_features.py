"""Features together, odd head dims, other tiles: rendered on the spot, held to the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import load, store  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.verify import verify  # noqa: E402

NAMES = [
    "attention_fwd_d64_fp16_causal_window_softcap_alibi_bias_mask_sinks_m32_n32_w4_s2",
    "attention_fwd_d64_bf16_window_softcap_alibi_bias_mask_sinks_m32_n32_w4_s2",
    "attention_fwd_d32_fp32_causal_window_m32_n32_w4_s2",
    "attention_fwd_d32_fp32_window_sinks_m32_n16_w4_s2",
    "attention_fwd_d16_fp16_causal_softcap_sinks_m32_n32_w4_s2",
    "attention_fwd_d16_bf16_alibi_mask_m32_n32_w4_s2",
    "attention_fwd_d16_fp32_bias_m16_n16_w4_s1",
    "attention_fwd_d16_bf16_sinks_m16_n64_w4_s2",
    # Head dims that are no power of two, and v of another width than q and k.
    "attention_fwd_d8_fp16_m16_n16_w4_s2",
    "attention_fwd_d72_fp16_causal_m32_n32_w4_s2",
    "attention_fwd_d80_bf16_m32_n32_w4_s2",
    "attention_fwd_d112_bf16_causal_m32_n32_w4_s2",
    "attention_fwd_d160_fp16_m32_n32_w4_s2",
    "attention_fwd_d192_dv128_bf16_causal_m32_n32_w4_s2",
    "attention_fwd_d64_dv96_fp32_m32_n32_w4_s2",
    # A tile wider than it is high, and the other way round.
    "attention_fwd_d32_bf16_causal_m16_n128_w4_s2",
    "attention_fwd_d32_bf16_causal_m128_n16_w4_s2",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right(device: str, tmp_path: Path, name: str) -> None:
    variant = parse(name)
    store.write(variant, tmp_path)
    report = verify(load(name, [tmp_path]), variant, device)
    assert not report.failed, str(report)
