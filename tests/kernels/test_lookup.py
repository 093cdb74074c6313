"""Which kernel a call gets: a tuned tile, the default, or any; and what the look-up remembers."""

from __future__ import annotations

import timeit
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

import attngen  # noqa: E402
from attngen import InvalidSpec, finder, runtime, store, winners  # noqa: E402
from attngen.buckets import bucket  # noqa: E402
from attngen.machine import Machine  # noqa: E402
from attngen.render import fingerprint  # noqa: E402
from attngen.spec_attention import AttentionFwd  # noqa: E402
from attngen.variant import parse  # noqa: E402
from attngen.winners import Record, Timing, Winners  # noqa: E402

H200 = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")
GPU = torch.device("cuda", 0)
SPEC = AttentionFwd(head_dim=128, dtype="bf16")
DEFAULT, TUNED, OTHER = (
    f"{SPEC.name}_{t}" for t in ("m64_n32_w4_s4", "m128_n64_w8_s3", "m16_n64_w4_s2")
)
HOPPER = f"{SPEC.name}_m128_n128_w4_s2_sm90"
SHORT, LONG = bucket(256, 256, 64), bucket(8192, 8192, 32)


def _timing(us: dict[str, float]) -> Timing:
    tiles = {name.removeprefix(f"{SPEC.name}_"): value for name, value in us.items()}
    return Timing(tiles, list(tiles))


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Winners]:
    """A tuned H200 that is not there: short shapes are for portable tiles, long ones for Hopper."""
    short = _timing({TUNED: 2.0, DEFAULT: 3.0, HOPPER: 4.0})
    long = _timing({HOPPER: 30.0, TUNED: 50.0, DEFAULT: 90.0})
    buckets = {
        "seqlen_q=256 seqlen_kv=256 heads=64": short,
        "seqlen_q=8192 seqlen_kv=8192 heads=32": long,
    }
    prints = {f"attention_fwd {b}": fingerprint("attention_fwd", b) for b in ("triton", "sm90")}
    known = Winners(H200, prints, {SPEC.name: Record([*long.us], {}, buckets)})
    monkeypatch.setattr(winners, "FOLDER", tmp_path / "tuned")
    monkeypatch.setattr(finder, "machine", lambda index: H200)
    monkeypatch.setattr(finder.interpret, "interpreting", lambda: False)
    monkeypatch.setattr(finder, "_load_file", lambda name, path: SimpleNamespace(name=name))
    winners.write(tmp_path / "tuned/nvidia-h200.json", known)
    winners._find.cache_clear()
    yield known
    winners._find.cache_clear()


def built(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        store.write(parse(name), folder)
    monkeypatch.setenv("ATTNGEN_KERNELS", str(folder))


def found(shape: Any, *, hopper: bool = True, device: Any = GPU) -> str:
    return finder.find(SPEC, hopper=hopper, device=device, bucket=shape).name


def test_the_winner_of_the_nearest_bucket(
    tuned: Winners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, monkeypatch, DEFAULT, TUNED, OTHER, HOPPER)
    assert found(SHORT) == found(bucket(100, 300, 8)) == TUNED
    assert found(LONG) == found(bucket(10**6, 10**6, 1)) == HOPPER
    # Tensors that the copy engine refuses get the fastest portable kernel.
    assert found(LONG, hopper=False) == TUNED
    # One answer for every shape: sqrt(2 * 50) = 10, sqrt(4 * 30) = 11.
    assert found(None) == TUNED


def test_what_is_not_built_is_passed_over(
    tuned: Winners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, monkeypatch, OTHER, DEFAULT)
    assert found(SHORT) == DEFAULT
    (tmp_path / f"{DEFAULT}.py").unlink()
    assert found(SHORT) == OTHER


def test_a_family_that_nobody_timed_is_not_thereby_slow(
    tuned: Winners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, monkeypatch, DEFAULT, TUNED, HOPPER)
    tuned.templates["attention_fwd sm90"] = "of yesterday"
    winners.write(tmp_path / "tuned/nvidia-h200.json", tuned)
    winners._find.cache_clear()
    assert found(SHORT) == found(LONG) == HOPPER
    assert found(SHORT, hopper=False) == TUNED


def test_without_a_gpu_or_winners_the_default_stands(
    tuned: Winners,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    built(tmp_path, monkeypatch, DEFAULT, TUNED, HOPPER)
    assert found(SHORT, device=None, hopper=False) == DEFAULT
    assert found(SHORT, device=torch.device("cpu"), hopper=False) == DEFAULT
    assert not caplog.records
    (tmp_path / "tuned/nvidia-h200.json").unlink()
    winners._find.cache_clear()
    for shape in (SHORT, LONG, None):
        assert found(shape) == HOPPER and found(shape, hopper=False) == DEFAULT
    assert [r.getMessage().split(":")[0] for r in caplog.records] == [
        "NVIDIA H200 has not been tuned"
    ]


def test_b50_lengths_choose_few_kernels(
    tuned: Winners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, monkeypatch, DEFAULT, TUNED, HOPPER)
    lengths = (*range(1, 65), *range(1000, 1065))
    assert {found(bucket(n, n, 32)) for n in lengths} == {TUNED, HOPPER}
    assert len({bucket(n, n, 32) for n in lengths}) <= 9


@pytest.mark.parametrize(
    ("hip", "capability", "hopper"),
    [(None, (9, 0), True), (None, (10, 0), False), ("6.4.0", (9, 0), False)],
)
def test_amd_chips_that_report_9_0_are_no_hopper(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, capability: Any, hopper: bool
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert finder.is_hopper.__wrapped__(GPU) is hopper


class OnGPU(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


class Called:
    """Stands for a kernel's module; says what it was found with."""

    def __init__(self, spec: AttentionFwd, **facts: Any) -> None:
        self.spec, self.facts = spec, facts

    def attention_fwd(self, q: Any, k: Any, v: Any, **options: Any) -> Any:
        return self, options


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[list[Called]]:
    made: list[Called] = []

    def find(spec: AttentionFwd, **facts: Any) -> Called:
        made.append(Called(spec, **facts))
        return made[-1]

    monkeypatch.setattr(runtime, "find", find)
    runtime.forget()
    yield made
    runtime.forget()


def rows(batch: int = 2, seqlen: int = 40, heads: int = 4, dtype: Any = torch.bfloat16) -> Any:
    return torch.zeros(batch, seqlen, heads, 64, dtype=dtype)


def test_a_call_like_an_earlier_one_is_not_looked_up_again(finds: list[Called]) -> None:
    q, k = rows(), rows(seqlen=50)
    first = attngen.attention(q, k, k, causal=True)
    assert attngen.attention(q.clone(), k.clone(), k, causal=True) is first
    assert attngen.attention(q, k, k) is not first
    assert attngen.attention(q, k, k, causal=True, softcap=2.0) is not first
    assert [kernel.facts["bucket"] for kernel in finds] == [bucket(40, 50, 8)] * 3
    # Another shape of the same bucket has the same kernel; another bucket is looked up.
    assert attngen.attention(rows(seqlen=39), k, k, causal=True) is first
    assert attngen.attention(rows(seqlen=80), k, k, causal=True) is not first
    assert len(finds) == 4


def test_alignment_and_strides_are_looked_at_in_every_call(
    finds: list[Called], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "is_hopper", lambda device: True)
    monkeypatch.setattr(runtime.interpret, "interpreting", lambda: False)

    def hopper(*tensors: Any, **options: Any) -> bool:
        q, k, v = (x.as_subclass(OnGPU) for x in tensors)
        return bool(attngen.attention(q, k, v, **options).facts["hopper"])

    q = rows()
    flat = torch.zeros(q.numel() + 1, dtype=q.dtype)
    shifted, wide = flat[1:].view_as(q), torch.zeros(2, 40, 4, 65, dtype=q.dtype)[..., :64]
    for _ in range(2):
        assert hopper(q, q, q)
        for odd in (shifted, wide):
            for arguments in ((odd, q, q), (q, odd, q), (q, q, odd)):
                assert not hopper(*arguments)
            assert not hopper(q, q, q, out=odd.as_subclass(OnGPU))
        assert hopper(q, q, q, out=q.clone().as_subclass(OnGPU))
        offsets = torch.zeros(2, dtype=torch.int32)
        assert not hopper(q, q, q, causal=True, causal_offset=offsets)
        assert hopper(q, q, q, causal=True, causal_offset=3)


def test_what_is_remembered_lets_no_bad_argument_pass(finds: list[Called]) -> None:
    q = rows()
    for _ in range(2):
        attngen.attention(q, q, q)
        with pytest.raises(TypeError, match="k: got ndarray"):
            attngen.attention(q, q.float().numpy(), q)
        with pytest.raises(ValueError, match="v: got shape"):
            attngen.attention(q, q, q[0])
        with pytest.raises(InvalidSpec, match=r"dtype: got torch\.float64"):
            attngen.attention(q.double(), q, q)
        with pytest.raises(TypeError, match="window_size: got"):
            attngen.attention(q, q, q, window_size=(-1.0, -1.0))
        with pytest.raises(ValueError, match="softcap: got 0"):
            attngen.attention(q, q, q, softcap=0.0)
        # The launcher refuses what is no tensor.
        assert attngen.attention(q, q, q, out=3).facts["hopper"] is False


def test_while_torch_compiles_there_are_no_addresses_and_no_sizes(
    finds: list[Called], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    q = rows().as_subclass(OnGPU)
    monkeypatch.setattr(
        OnGPU, "data_ptr", lambda self: pytest.fail("asked for an address"), raising=False
    )
    kernel = attngen.attention(q, q, q)
    assert kernel.facts["bucket"] is None and kernel.facts["hopper"] is False


def test_few_shapes_are_remembered(finds: list[Called], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOST_KERNELS", 5)
    for n in range(1, 40):
        attngen.attention(rows(seqlen=n), rows(), rows())
    assert len(runtime._kernels) <= 5 and len(finds) == 7


def test_the_look_up_takes_microseconds(finds: list[Called]) -> None:
    """Some 4 of them; the limit is for a machine that does other things as well."""
    q = rows()
    best = min(timeit.repeat(lambda: attngen.attention(q, q, q, causal=True), number=500, repeat=9))
    assert best / 500 < 15e-6
