"""The numbers of the cost model, to the digits given."""

import pytest

from attngen.reference import cost
from attngen.reference.cost import GIB, H100_SXM, llama3_8b_layer

LAYER = llama3_8b_layer()


def shown(x, digits):
    return f"{x:.{digits}f}"


def test_the_gpu():
    assert (H100_SXM.peak_flops, H100_SXM.bandwidth) == (989.4e12, 3.35e12)
    assert shown(H100_SXM.ridge, 0) == "295"


def test_the_intermediates():
    assert shown(LAYER.s_bytes / GIB, 2) == "4.00"
    assert shown(llama3_8b_layer(32768).s_bytes / GIB, 1) == "64.0"
    assert shown(LAYER.materialised_bytes / GIB, 3) == "16.156"
    assert shown(100 * LAYER.intermediate_bytes / LAYER.materialised_bytes, 0) == "99"


def test_the_arithmetic_and_its_intensity():
    assert f"{LAYER.flops:.4e}" == "1.0995e+12"
    assert shown(LAYER.materialised_intensity, 0) == "63"
    assert shown(LAYER.fused_intensity, 1) == "6553.6"
    assert shown(LAYER.head().fused_intensity, 0) == "4096"
    assert shown(LAYER.fused_intensity / LAYER.materialised_intensity, 0) == "103"
    assert shown(LAYER.fused_intensity / H100_SXM.ridge, 0) == "22"
    assert shown(H100_SXM.ridge / LAYER.materialised_intensity, 1) == "4.7"


def test_one_head():
    head = LAYER.head()
    assert shown(head.flops / 1e9, 2) == "34.36"
    assert shown(head.materialised_bytes / 1e6, 1) == "545.3"
    assert shown(head.materialised_intensity, 0) == "63"


def test_the_times():
    layer = cost.traffic_time(LAYER.materialised_bytes, H100_SXM)
    assert shown(1e3 * layer, 2) == "5.18"
    assert shown(1e3 * cost.LLAMA3_8B_LAYERS * layer, 1) == "165.7"
    floor = cost.LLAMA3_8B_LAYERS * cost.compute_time(LAYER.flops, H100_SXM)
    assert shown(1e3 * floor, 1) == "35.6"
    assert cost.roofline_time(LAYER.flops, LAYER.materialised_bytes, H100_SXM) == layer
    assert cost.roofline_time(LAYER.flops, LAYER.fused_bytes, H100_SXM) == pytest.approx(
        LAYER.flops / 989.4e12
    )


def test_decode_merge_and_rescale():
    assert cost.decode_intensity(32, 8) == 4.0
    one = cost.Attention(seqlen_q=1, seqlen_kv=1_000_000, heads_q=32, heads_kv=8, head_dim=128)
    assert one.fused_intensity == pytest.approx(4.0, rel=1e-4)
    assert cost.merge_bytes(128) == 776
    assert cost.merge_flops(128) == 390
    assert cost.rescale_share(64) == 1 / 64
    assert shown(100 * cost.rescale_share(64), 1) == "1.6"


def test_naive_memory_holds_s_and_p_at_once():
    assert cost.naive_memory(LAYER) == 8 * GIB + LAYER.fused_bytes
    weights = cost.LLAMA3_8B_WEIGHTS
    largest = cost.largest_naive_seqlen(LAYER, H100_SXM, weights)
    assert cost.naive_memory(llama3_8b_layer(largest), weights) <= H100_SXM.memory
    assert cost.naive_memory(llama3_8b_layer(largest + 1), weights) > H100_SXM.memory
    assert 22_000 < largest < 22_500
    # S alone would let 32768 tokens in, but not S and P.
    assert weights + llama3_8b_layer(30_000).s_bytes < H100_SXM.memory
    assert cost.largest_naive_seqlen(LAYER, H100_SXM, weights=81e9) == 0


def test_every_gpu_and_where_its_rates_are_from():
    ridges = {name: shown(gpu.ridge, 0) for name, gpu in cost.GPUS.items()}
    assert ridges == {"A100": "153", "H100": "295", "H200": "206", "B200": "281", "MI300X": "247"}
    for gpu in cost.GPUS.values():
        assert "data sheet" in gpu.source
        assert gpu.in_float32().peak_flops == gpu.peak_flops_fp32 < gpu.peak_flops / 8
