"""Tuning on the GPU that is there: a small run from candidates to the call that uses the winner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import device, finder, runtime, store, winners  # noqa: E402
from attngen.buckets import bucket  # noqa: E402
from attngen.lab import Lab  # noqa: E402
from attngen.spec_attention import AttentionFwd  # noqa: E402
from attngen.trials import TRIALS  # noqa: E402
from attngen.tune import tune  # noqa: E402
from attngen.tune_attention import Shape  # noqa: E402
from attngen.tune_jobs import job  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.winners import Winners  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
SPEC = AttentionFwd(head_dim=64, dtype="bf16", causal=True)
SHAPES = [Shape(2, 200, 300, 4, 2), Shape(1, 1000, 1000, 8, 8)]


def test_from_candidates_to_the_call_that_uses_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = TRIALS[SPEC.op]
    few = replace(
        trial,
        candidates=lambda spec, backend: list(trial.candidates(spec, backend))[:3],
        shapes=lambda spec: SHAPES,
    )
    monkeypatch.setitem(TRIALS, SPEC.op, few)
    here = device.machine_to_tune()
    file, kernels = tmp_path / "tuned" / f"{here.slug}.json", tmp_path / "kernels"
    known = Winners(here)
    lab = Lab(here.target, tmp_path / "scratch", rounds=3)
    try:
        save = winners.write
        steps = list(tune([job(SPEC, here.target)], lab, known, lambda now: save(file, now)))
    finally:
        lab.close()
    assert not any(step.failed for step in steps), "\n".join(map(str, steps))
    assert winners.read(file, here) == known
    record = known.specs[SPEC.name]
    assert len(record.buckets) == 2 and all(map(record.proven, record.buckets.values()))

    for name in known.to_build(SPEC.op, SPEC.name):
        store.write(parse(name), kernels)
    monkeypatch.setenv(store.PATH_VARIABLE, str(kernels))
    monkeypatch.setenv(winners.PATH_VARIABLE, str(file.parent))
    winners._find.cache_clear()
    runtime.forget()
    try:
        for shape in SHAPES:
            (q, k, v), _ = trial.inputs(SPEC, shape, "cuda")
            o = attngen.attention(q, k, v, causal=True)
            wanted = bucket(*trial.sizes(shape).values())
            best = known.ranking(SPEC.op, SPEC.name, wanted)[0]
            hopper = finder.is_hopper(q.device)
            module = finder.find(SPEC, hopper=hopper, device=q.device, bucket=wanted)
            assert module.__name__.endswith(best)
            assert torch.equal(o, module.attention_fwd(q, k, v)[0])
    finally:
        winners._find.cache_clear()
        runtime.forget()
