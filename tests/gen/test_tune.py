"""Tuning with a made-up compiler, clock and GPU: what may win, what is kept, when it stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="tuning runs kernels")
pytest.importorskip("triton", reason="tuning runs kernels")

from fake_bench import H200, FakeBench

from attngen import winners
from attngen.catalog import catalog
from attngen.config import TARGETS
from attngen.errors import GpuLost
from attngen.machine import Machine
from attngen.ops import default_config
from attngen.spec_attention import AttentionFwd
from attngen.tiles_attention import shared_memory
from attngen.tiles_decode import wide_config
from attngen.trials import TRIALS
from attngen.tune import Step, tune
from attngen.tune_jobs import Job, job
from attngen.variant import Variant, parse
from attngen.winners import Winners

SPEC = AttentionFwd(head_dim=128, dtype="bf16", causal=True)
DEFAULT = "m64_n32_w4_s4"
HOPPER = "m128_n128_w4_s2_sm90"
A, B, C = "m128_n64_w8_s3", "m64_n64_w4_s3", "m128_n128_w8_s2"


def jobs(*specs: AttentionFwd) -> list[Job]:
    return [job(spec, H200.target) for spec in specs or (SPEC,)]


def run(bench: FakeBench, known: Winners, path: Path | None = None, **options: Any) -> list[Step]:
    def save(now: Winners) -> None:
        if path:
            winners.write(path, now)

    asked = options.pop("jobs", None) or jobs()
    return list(tune(asked, bench, known, save, clock=bench.clock, **options))


def best(known: Winners, seqlen: int = 4096) -> str:
    bucket = (12, 12, 6) if seqlen == 4096 else (8, 8, 10)
    return known.ranking("attention_fwd", SPEC.name, bucket)[0].removeprefix(f"{SPEC.name}_")


def test_the_fastest_of_each_bucket_wins() -> None:
    bench = FakeBench({A: 40.0, B: 41.0}, by_bucket={256: {A: 9.0, B: 5.0}})
    known = Winners(H200)
    steps = run(bench, known)
    assert best(known) == A and best(known, 256) == B
    assert not any(step.failed for step in steps)
    record = known.specs[SPEC.name]
    # These are begun at once, and slower ones are not proven; the portable family and all shapes
    # at once have winners too.
    assert set(record.verified) == set(bench.expected) == {A, B}
    # The mean of the ratios is B's: it is hardly slower where A wins, and much faster where not.
    assert known.ranking("attention_fwd", SPEC.name, None) == [f"{SPEC.name}_{B}"]
    assert set(known.to_build("attention_fwd", SPEC.name)) == {f"{SPEC.name}_{t}" for t in (A, B)}


def test_a_portable_tile_is_proven_beside_the_hopper_one() -> None:
    known = Winners(H200)
    run(FakeBench({HOPPER: 20.0, A: 40.0}), known)
    assert best(known) == HOPPER
    portable = known.specs[SPEC.name].ranking((12, 12, 6))
    assert portable == [HOPPER, A]
    assert known.to_build("attention_fwd", SPEC.name) == [f"{SPEC.name}_{t}" for t in (HOPPER, A)]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"wrong": {A}}, "o is wrong"),
        ({"racy": {A: {4096}}}, "other bits"),
        ({"racy": {A: {256}}}, "other bits"),
        ({"racy": {A: {8192}}}, "other bits"),
        ({"spills": {A}}, "64 bytes spilled"),
        ({"too_large": {A}}, "shared memory: 300000 bytes, sm_90 has 232448"),
        ({"refused": {A}}, "does not want to"),
        ({"unlaunched": {A}}, "OutOfResources"),
    ],
)
def test_what_is_wrong_racy_or_does_not_fit_never_wins(fault: dict[str, Any], reason: str) -> None:
    known = Winners(H200)
    run(FakeBench({A: 1.0, B: 41.0}, **fault), known)
    assert best(known) == best(known, 256) == B
    assert reason in known.specs[SPEC.name].rejected[A]
    assert known.ranking("attention_fwd", SPEC.name, None)[0] == f"{SPEC.name}_{B}"
    for name in known.to_build("attention_fwd", SPEC.name):
        assert name != f"{SPEC.name}_{A}"


def test_a_tile_that_fails_on_a_shape_it_did_not_win_loses_those_it_won() -> None:
    known = Winners(H200)
    short = {256: {A: 9.0, B: 5.0, C: 6.0}}
    run(FakeBench({A: 40.0, B: 41.0}, short, racy={B: {4096}}), known)
    assert best(known) == A and best(known, 256) == C
    assert known.ranking("attention_fwd", SPEC.name, None) == [f"{SPEC.name}_{A}"]


def test_b47_what_does_not_fit_is_skipped_with_the_sizes_and_costs_no_gpu_time() -> None:
    small = Machine("NVIDIA L40S", "8.9", 101_376, "3.6.0")
    spec = AttentionFwd(head_dim=256, dtype="bf16")
    known = Winners(small)
    steps = run(FakeBench(machine=small), known, jobs=[job(spec, small.target)])
    for timing in known.specs[spec.name].buckets.values():
        assert timing.us and not any(winners.family(tile) == "sm90" for tile in timing.us)
        for t in timing.us:
            variant = parse(f"{spec.name}_{t}")
            assert shared_memory(variant.spec, variant.config) <= 101_376
    assert "139264 bytes, sm_89 has 101376" in str(steps[0])
    assert "kernels of sm90 are for Hopper alone" in str(steps[0])
    assert not any(step.failed for step in steps)


def test_b47_where_none_fits_the_error_has_the_sizes() -> None:
    tiny = replace(H200, shared_memory=1000)
    known = Winners(tiny)
    steps = run(FakeBench(machine=tiny), known, jobs=[job(SPEC, tiny.target)])
    failures = [str(step) for step in steps if step.failed]
    assert "no tile serves" in failures[0]
    assert "81920 bytes, sm_90 has 1000" in failures[0]


def test_a_default_that_spills_is_timed_all_the_same() -> None:
    known = Winners(H200)
    steps = run(FakeBench({A: 40.0}, spills={DEFAULT}), known)
    assert DEFAULT in known.specs[SPEC.name].buckets["seqlen_q=256 seqlen_kv=256 heads=1024"].us
    assert not any(step.failed for step in steps)


def test_a_default_that_is_wrong_fails_the_run() -> None:
    known = Winners(H200)
    steps = run(FakeBench({DEFAULT: 1.0, A: 40.0}, wrong={DEFAULT}), known)
    assert best(known) == A
    (failure,) = [step for step in steps if step.failed]
    assert f"its default {DEFAULT} is rejected: whole tiles: o is wrong" in str(failure)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    first = FakeBench({A: 40.0}, interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        run(first, Winners(H200), path)
    assert len(first.timed) == 3
    again = FakeBench({A: 40.0})
    known = winners.read(path, H200)
    steps = run(again, known, path)
    assert len(again.timed) == 7 - 3
    assert f"refuted {A}" in again.proofs
    assert steps[-1].done == steps[-1].total == len(again.timed)
    # A third run does nothing at all.
    third = FakeBench()
    assert run(third, winners.read(path, H200), path) == []
    assert not third.timed and not third.proofs and third.prepared == []
    assert winners.read(path, H200) == known


def test_specs_are_proven_a_few_at_a_time_while_none_is_timed() -> None:
    specs = [AttentionFwd(head_dim=8 * n, head_dim_v=8 * n, dtype="bf16") for n in range(1, 11)]
    bench, order = FakeBench({A: 40.0}), []
    steps = run(bench, Winners(H200), jobs=jobs(*specs))
    for step in steps:
        words = str(step).split(": ")
        order.append("timed" if words[-1] == "timed" else words[-1].split()[0])
    told = [word for word in order if word in ("timed", A)]
    assert told == ["timed"] * 56 + [A] * 56 + ["timed"] * 14 + [A] * 14
    assert len(bench.expected) == len(specs)


def test_a_run_stopped_before_the_last_proofs_makes_them_up(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    run(FakeBench({A: 40.0, B: 41.0}, by_bucket={256: {A: 9.0, B: 5.0}}), Winners(H200), path)
    known = winners.read(path, H200)
    for timing in known.specs[SPEC.name].buckets.values():
        timing.repeatable.clear()
    later = FakeBench()
    run(later, known)
    assert not later.timed and f"repeated {A}" in later.proofs
    assert best(known) == A and best(known, 256) == B
    assert known.ranking("attention_fwd", SPEC.name, None) == [f"{SPEC.name}_{B}"]


def test_a_new_candidate_has_its_buckets_timed_anew(tmp_path: Path) -> None:
    known = Winners(H200)
    run(FakeBench({A: 40.0}), known)
    for timing in known.specs[SPEC.name].buckets.values():
        del timing.us[B]
    bench = FakeBench({A: 40.0, B: 30.0})
    run(bench, known)
    assert len(bench.timed) == 7 and best(known) == B


def test_changed_templates_are_measured_anew() -> None:
    known = Winners(H200)
    run(FakeBench({HOPPER: 20.0, A: 40.0}, wrong={C}), known)
    known.templates["attention_fwd triton"] = "of yesterday"
    bench = FakeBench({HOPPER: 20.0, B: 30.0})
    run(bench, known)
    assert len(bench.timed) == 7 and f"refuted {B}" in bench.proofs
    # What the unchanged family proved stays proven.
    assert f"refuted {HOPPER}" not in bench.proofs
    assert best(known) == HOPPER and known.specs[SPEC.name].ranking((12, 12, 6))[1] == B


def test_the_budget_is_kept_and_the_rest_is_left() -> None:
    full = AttentionFwd(head_dim=128, dtype="bf16")
    bench, known = FakeBench(cost=10.0), Winners(H200)
    steps = run(bench, known, jobs=jobs(SPEC, full), budget=55.0)
    assert bench.now == 50.0 and len(bench.timed) == 5
    assert (steps[-1].done, steps[-1].total) == (5, 14)
    assert "about 90 s left" in str(steps[-1])
    assert str(steps[-1]).startswith("[#######.............] 5/14, 50 s gone")
    more = FakeBench(cost=10.0)
    run(more, known, jobs=jobs(SPEC, full))
    assert len(more.timed) == 9


def test_a_kernel_that_kills_the_gpu_is_left_out_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "h200.json"
    with pytest.raises(GpuLost, match="run the command again"):
        run(FakeBench({A: 1.0}, lost=A), Winners(H200), path)
    known = winners.read(path, H200)
    assert "illegal memory access" in known.specs[SPEC.name].rejected[A]
    run(FakeBench({A: 1.0, B: 40.0}, lost=A), known, path)
    assert best(known) == B


def test_candidates_are_valid_and_begin_with_the_default() -> None:
    for spec in (
        SPEC,
        replace(SPEC, bias=True),
        replace(SPEC, dtype="fp32", head_dim=256, head_dim_v=256),
    ):
        for backend in ("triton", "sm90"):
            found = list(TRIALS["attention_fwd"].candidates(spec, backend))
            assert len(set(found)) == len(found)
            assert not found or found[0] == default_config(spec, backend)
            for config in found:
                Variant(spec, config)
    assert "m64_n16_w4_s4" not in job(SPEC, TARGETS["sm_90"]).tiles


@pytest.mark.parametrize("name", sorted(n for n, v in catalog().items() if v.spec.op in TRIALS))
def test_candidates_of_what_is_committed(name: str) -> None:
    """Tiles of the spec, each once, the committed one first; what a run chooses by is no tile."""
    variant = catalog()[name]
    if variant.config != default_config(variant.spec, variant.config.backend):
        assert variant.config == wide_config(variant.spec)
        return
    found = list(TRIALS[variant.spec.op].candidates(variant.spec, variant.config.backend))
    assert found[0] == variant.config and len(set(found)) == len(found)
    # Rows of 32768 columns in registers take every thread that a program may have.
    alone = variant.config.backend == "sm90" or "c32768_" in name
    assert len(found) > 1 or alone
    for config in found:
        Variant(variant.spec, config)


def test_shapes_are_in_buckets_of_their_own() -> None:
    for spec in {v.spec.op: v.spec for v in catalog().values() if v.spec.op in TRIALS}.values():
        shapes = list(TRIALS[spec.op].shapes(spec))
        assert len(job(spec, H200.target).shapes) == len(shapes)
