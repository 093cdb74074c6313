"""What tuning calls: inputs of every operator fit its launcher, at sizes for the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import load, store, tune_attention, tune_decode  # noqa: E402
from attngen.ops import OPS  # noqa: E402
from attngen.trials import TRIALS  # noqa: E402
from attngen.variant import parse  # noqa: E402

SMALL: dict[str, Any] = {
    "attention_fwd": tune_attention.Shape(2, 5, 20, 4, 2),
    "attention_decode": tune_decode.Shape(2, 40, 4, 2),
    "attention_varlen": tune_attention.Shape(2, 5, 32, 4, 2),
    "attention_paged": tune_attention.Shape(2, 5, 32, 4, 2),
    "merge_state": 3,
    "merge_states": 3,
    "softmax": (3, 300),
    "softmax_topk": (3, 300),
}
NAMES = [
    "attention_fwd_d16_fp16_causal_window_softcap_alibi_bias_mask_sinks_m16_n16_w1_s1",
    "attention_decode_d16_fp16_m16_n16_w1_s1",
    "attention_decode_d16_fp16_causal_window_softcap_alibi_sinks_paged_m16_n16_w1_s1",
    "attention_varlen_d16_fp16_causal_window_softcap_alibi_sinks_m16_n16_w1_s1",
    "attention_paged_d16_fp16_causal_window_softcap_alibi_sinks_m16_n16_w1_s1",
    "merge_state_d16_bf16_m8_w1_s1",
    "merge_state_d16_bf16_out_fp8_m8_w1_s1",
    "merge_states_d16_fp16_m8_w1_s1",
    "merge_states_d16_fp16_ragged_m8_w1_s1",
    "softmax_c512_fp16_single_m2_w4_s1",
    "softmax_c512_bf16_online_mask_scaled_n1024_w4_s1",
    "softmax_c512_fp32_split_log_lse_n256_w4_s1",
    "softmax_topk_c512_k4_fp32_n512_w4_s1",
]


@pytest.mark.parametrize("name", NAMES)
def test_inputs_fit_the_launcher(device: str, tmp_path: Path, name: str) -> None:
    variant = parse(name)
    store.write(variant, tmp_path)
    trial = TRIALS[variant.spec.op]
    arguments, options = trial.inputs(variant.spec, SMALL[variant.spec.op], device)
    call = getattr(load(name, [tmp_path]), variant.spec.op)
    results = call(*arguments, **options)
    for result in results if isinstance(results, tuple) else (results,):
        assert result.float().isfinite().all()
    again, _ = trial.inputs(variant.spec, SMALL[variant.spec.op], device)
    tensors = [(x, y) for x, y in zip(arguments, again, strict=True) if isinstance(x, torch.Tensor)]
    assert tensors and all(torch.equal(x, y) for x, y in tensors)


def test_every_operator_is_tuned_and_is_here() -> None:
    assert set(OPS) == set(SMALL) == set(TRIALS) == {parse(name).spec.op for name in NAMES}
