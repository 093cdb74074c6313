"""Candidates that are wrong, racy or write half, planted and really run: none of them can win."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import lab, store, timing, tune_attention, verify  # noqa: E402
from attngen.cases_attention import Case  # noqa: E402
from attngen.compile import Refusal, Resources  # noqa: E402
from attngen.config import TARGETS, TileConfig  # noqa: E402
from attngen.errors import GpuLost  # noqa: E402
from attngen.lab import Lab  # noqa: E402
from attngen.machine import Machine  # noqa: E402
from attngen.ops import default_config  # noqa: E402
from attngen.render import render  # noqa: E402
from attngen.spec_attention import AttentionFwd  # noqa: E402
from attngen.trials import TRIALS  # noqa: E402
from attngen.tune import tune  # noqa: E402
from attngen.tune_jobs import job  # noqa: E402
from attngen.variant import Variant, parse  # noqa: E402
from attngen.winners import Winners  # noqa: E402

H200 = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")
SPEC = AttentionFwd(head_dim=16, dtype="fp32", causal=True)
WRONG, RACY, HALF, RIGHT = (
    Variant(SPEC, TileConfig(block_m=16, block_n=n, num_warps=w, num_stages=1))
    for n, w in ((16, 1), (16, 2), (16, 4), (32, 1))
)
SHAPE = tune_attention.Shape(1, 20, 24, 1, 1)

FLIPPED = """
    _RUNS[0] += 1
    out.view(torch.int32)[0, 0, 0, 0] ^= _RUNS[0] % 7 == 0
    return out, lse
"""


def _racy(text: str) -> str:
    """One bit of one element is another in every seventh run: within any budget."""
    head, tail = text.rsplit("    return out, lse\n", 1)
    return f"{head}{FLIPPED.lstrip(chr(10))}{tail}\n_RUNS = [0]\n"


PLANTED: dict[Variant, Callable[[str], str]] = {
    WRONG: lambda text: text.replace("1.4426950408889634", "1.44"),
    RACY: _racy,
    HALF: lambda text: text.replace("_KERNEL[(num_tiles,)]", "_KERNEL[(num_tiles - 1,)]"),
}


@pytest.fixture(autouse=True)
def planted(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(variant: Variant) -> str:
        text = render(variant)
        if variant not in PLANTED:
            return text
        assert PLANTED[variant](text) != text
        return PLANTED[variant](text)

    assert lab.RUNS == 50
    monkeypatch.setattr(lab, "RUNS", 10)
    monkeypatch.setattr(store, "render", changed)
    few = [Case("one query, one key", 1, 1, heads_q=1), Case("tiles", 20, 40, batch=2)]
    check = verify.OPS["attention_fwd"][1]
    monkeypatch.setitem(verify.OPS, "attention_fwd", (lambda variant, long: few, check))
    monkeypatch.setitem(
        TRIALS,
        "attention_fwd",
        replace(
            TRIALS["attention_fwd"],
            candidates=lambda spec, backend: [
                *(v.config for v in (WRONG, RACY, HALF, RIGHT) if backend == "triton"),
                *([default_config(spec, backend)] if backend == "triton" else []),
            ],
            shapes=lambda spec: [SHAPE],
        ),
    )


class TimedLab(Lab):
    """The planted kernels are the fastest, in this order; nothing is compiled."""

    def prepare(self, variants: Iterable[Variant]) -> None:
        pass

    def resources(self, variant: Variant) -> Resources | Refusal:
        return Resources(variant.name, "sm_90", 100, 0, 1000, 232_448)

    def expect(self, variants: Iterable[Variant]) -> None:
        """Other processes know nothing of the planted faults."""

    def times(self, variants: Sequence[Variant], shape: Any) -> dict[str, float | str]:
        return {variant.name: float(i + 1) for i, variant in enumerate(variants)}


def test_wrong_racy_and_half_writing_kernels_cannot_win(device: str, tmp_path: Path) -> None:
    here = TimedLab(TARGETS["sm_90"], tmp_path, device)
    known = Winners(H200)
    steps = list(tune([job(SPEC, H200.target)], here, known, lambda now: None))
    (ranking,) = [known.ranking("attention_fwd", SPEC.name, b) for b in [(5, 5, 0)]]
    assert ranking == [RIGHT.name]
    rejected = known.specs[SPEC.name].rejected
    assert "m16_n16_w1_s1" in rejected and "other bits" in rejected["m16_n16_w2_s1"]
    assert "m16_n16_w4_s1" in rejected and len(rejected) == 3
    assert f"{RIGHT.name.removeprefix(SPEC.name + '_')} 4.0 us" in str(steps[-1])
    assert known.to_build("attention_fwd", SPEC.name) == [RIGHT.name]


def test_each_check_sees_its_fault(device: str, tmp_path: Path) -> None:
    here = Lab(TARGETS["sm_90"], tmp_path, device)
    assert here.refuted(RIGHT) is None and here.unrepeatable(RIGHT, SHAPE) is None
    assert "tiles: " in (here.refuted(WRONG) or "")
    assert here.unrepeatable(WRONG, SHAPE) is None
    # A bit now and then is within the budget, and no run writes less than all.
    assert here.refuted(RACY) is None
    assert "gave other bits than the first" in (here.unrepeatable(RACY, SHAPE) or "")
    assert here.refuted(HALF) is not None
    assert here.unrepeatable(HALF, SHAPE) == "part of its output was not written, or is NaN"


def test_a_kernel_that_raises_is_refuted_in_one_line(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Lab(TARGETS["sm_90"], tmp_path, device)

    def broken(variant: Variant) -> Any:
        raise RuntimeError("out of resource: shared memory\nRequired: 300000")

    monkeypatch.setattr(here, "module", broken)
    told = "RuntimeError: out of resource: shared memory"
    assert here.refuted(RIGHT) == here.unrepeatable(RIGHT, SHAPE) == told
    # Where the GPU does not answer any more, nothing after it can be trusted.
    here.device = "cuda"
    monkeypatch.setattr(tune_attention.torch, "Generator", lambda device: torch.manual_seed(0))
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    with pytest.raises(GpuLost, match="left out from now on"):
        here.refuted(RIGHT)

    def full(variant: Variant) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(here, "module", full)
    with pytest.raises(torch.OutOfMemoryError):
        here.refuted(RIGHT)


def test_times_are_medians_a_call_of_what_is_near_the_fastest(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[tuple[list[str], int]] = []
    names = {v.name: v for v in (WRONG, RACY, HALF, RIGHT)}
    milliseconds = dict(zip(names, (1.0, 1.1, 2.0, 1.2), strict=True))

    def captured(call: Any) -> Any:
        name = call.args[0].__module__.rsplit(".", 1)[1]
        if name == RIGHT.name:
            raise RuntimeError("it does not launch")
        call()
        return name

    def interleaved(graphs: dict[str, Any], count: int, rest: float = 1.0) -> dict[str, Any]:
        assert all(name == graph for name, graph in graphs.items())
        rounds.append((list(graphs), count))
        return {name: [9.9, milliseconds[name], 0.0] for name in graphs}

    monkeypatch.setattr(timing, "captured", captured)
    monkeypatch.setattr(timing, "interleaved", interleaved)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(lab, "_l2_bytes", lambda: 1)
    monkeypatch.setattr(lab, "ROTATED_BYTES", 1)
    found = Lab(TARGETS["sm_90"], tmp_path, device, rounds=5).times(list(names.values()), SHAPE)
    assert rounds == [([WRONG.name, RACY.name, HALF.name], 3), ([WRONG.name, RACY.name], 5)]
    # Two sets of inputs share a call's milliseconds.
    assert found == {
        WRONG.name: 500.0,
        RACY.name: 550.0,
        HALF.name: 1000.0,
        RIGHT.name: "RuntimeError: it does not launch",
    }


class FakePool:
    """A pool that is down from the kernel on whose compiler crashes."""

    crashing: Variant

    def __init__(self, workers: int) -> None:
        self.broken = False

    def submit(self, call: Any, pair: tuple[Variant, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.broken |= pair[0] == self.crashing
        if self.broken:
            future.set_exception(BrokenProcessPool("terminated abruptly"))
        else:
            future.set_result(Resources(pair[0].name, "sm_90", 1, 0, 1, 2))
        return future

    def shutdown(self, **options: bool) -> None:
        pass


def test_a_compiler_that_crashes_takes_no_other_kernel_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakePool.crashing = HALF
    monkeypatch.setattr(lab, "_pool", FakePool)
    here = Lab(TARGETS["sm_90"], tmp_path)
    variants = [WRONG, RACY, HALF, RIGHT]
    here.prepare(variants)
    found = [here.resources(variant) for variant in variants]
    assert [isinstance(report, Refusal) for report in found] == [False, False, True, False]
    assert "its compiler crashed" in str(found[2])
    here.close()


@pytest.mark.parametrize(
    "name",
    [
        "attention_fwd_d64_bf16_m64_n64_w4_s3",
        "attention_fwd_d64_bf16_causal_window_softcap_alibi_bias_mask_sinks_m32_n32_w4_s2",
        "attention_decode_d64_bf16_m16_n64_w4_s4",
        "attention_decode_d64_bf16_causal_window_softcap_alibi_sinks_paged_m16_n32_w4_s2",
        "attention_varlen_d64_bf16_causal_m64_n32_w4_s4",
        "attention_paged_d64_bf16_causal_m64_n32_w4_s5",
        "merge_state_d64_bf16_out_fp8_m32_w4_s1",
        "merge_states_d64_bf16_m8_w1_s1",
        "merge_states_d64_bf16_ragged_m8_w1_s1",
        "softmax_c1024_bf16_single_log_lse_mask_scaled_m2_w4_s1",
        "softmax_c131072_fp32_split_n8192_w8_s1",
        "softmax_topk_c131072_k8_bf16_n2048_w2_s1",
    ],
)
def test_what_is_compiled_ahead_is_what_calls_look_for(name: str, tmp_path: Path) -> None:
    """So the GPU does not wait for compilers: the processes have filled Triton's cache."""
    script = Path(__file__).with_name("compiled_ahead.py")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, str(script), name]
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    assert found["wanted"] and not found["anew"]
    assert set(found["wanted"]) == set(found["ahead"])


def test_proofs_are_made_in_processes_and_again_here_where_one_died(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Lab(TARGETS["sm_90"], tmp_path, device)
    monkeypatch.setattr(lab, "MOST_PROVERS", 2)
    merge = parse("merge_state_d5_bf16_m4_w1_s1")
    here.expect([merge])
    assert here.refuted(merge) is None and here.provers is not None

    class Dead(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            raise BrokenProcessPool("terminated abruptly")

    here.proofs[RIGHT] = here.proofs[WRONG] = Dead()
    assert here.refuted(RIGHT) is None
    assert here.provers is None and not here.proofs
    assert "o" in str(here.refuted(WRONG))
    here.close()


def test_inputs_are_what_a_kernel_of_every_feature_takes(device: str, tmp_path: Path) -> None:
    spec = AttentionFwd(head_dim=16, dtype="fp32", causal=True, window=True, softcap=True,
                        alibi=True, bias=True, mask=True, sinks=True)  # fmt: skip
    variant = Variant(spec, RIGHT.config)
    assert Lab(TARGETS["sm_90"], tmp_path, device).unrepeatable(variant, SHAPE) is None
