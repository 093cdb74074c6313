"""The file of winners: whole or not at all, and of no use where it is not of this GPU."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attngen import buckets, winners
from attngen.machine import Machine
from attngen.render import fingerprint
from attngen.winners import Miss, Record, Timing, Winners

H200 = Machine("NVIDIA H200", "9.0", 232_448, "3.6.0")
SPEC = "attention_fwd_d128_bf16"
SHORT = "seqlen_q=256 seqlen_kv=256 heads=64"
LONG = "seqlen_q=8192 seqlen_kv=8192 heads=32"
HOPPER = "m128_n128_w4_s2_sm90"


@pytest.fixture(autouse=True)
def said_anew() -> None:
    winners._find.cache_clear()
    winners._say_stale.cache_clear()


def known() -> Winners:
    """Short shapes are for m64, long ones for m128, where m64 is slower; m16 is wrong."""
    short = Timing({"m64": 2.0, "m128": 3.0, "m16": 1.0, "m32": 1.5}, ["m64", "m128"])
    long = Timing({"m64": 90.0, "m128": 50.0, "m16": 10.0, HOPPER: 30.0}, ["m64", "m128", HOPPER])
    record = Record(["m64", "m128", HOPPER], {"m16": "wrong"}, {SHORT: short, LONG: long})
    prints = {f"attention_fwd {b}": fingerprint("attention_fwd", b) for b in ("triton", "sm90")}
    return Winners(H200, prints, {SPEC: record})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "nvidia-h200.json"
    winners.write(path, known())
    assert winners.read(path, H200) == known() == winners.read(path)
    assert json.loads(path.read_text())["device"] == "NVIDIA H200"
    assert [p.name for p in path.parent.iterdir()] == ["nvidia-h200.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nvidia-h200.json"
    winners.write(path, known())

    def full(self: Path, *rest: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        winners.write(path, Winners(H200))
    assert winners.read(path, H200) == known()
    assert len(list(tmp_path.iterdir())) == 1


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    data = json.loads(winners.as_text(known()))
    change(data)
    return json.dumps(data)


def timing(data: dict[str, Any]) -> dict[str, Any]:
    return data["specs"][SPEC]["buckets"][SHORT]


BAD: dict[str, tuple[str | bytes, str]] = {
    "another GPU": (changed(lambda d: d.update(device="NVIDIA L40S")), "device: got 'NVIDIA L40S'"),
    "another capability": (changed(lambda d: d.update(capability="8.9")), "capability: got '8.9'"),
    "less shared memory": (
        changed(lambda d: d.update(shared_memory=101_376)),
        "shared_memory: got 101376, this is 232448",
    ),
    "another Triton": (changed(lambda d: d.update(triton="3.7.0")), "triton: got '3.7.0'"),
    "another schema": (changed(lambda d: d.update(schema=2, more=1)), "schema: got 2, this is 1"),
    "schema of another type": (changed(lambda d: d.update(schema=True)), "schema: got True"),
    "an unknown key": (changed(lambda d: d.update(num_ctas=1)), "unknown key 'num_ctas'"),
    "an unknown key of a spec": (
        changed(lambda d: d["specs"][SPEC].update(x=1)),
        f"specs: {SPEC}: unknown key 'x'",
    ),
    "an unknown key of a bucket": (changed(lambda d: timing(d).update(ms={})), "unknown key 'ms'"),
    "a missing key": (changed(lambda d: d.pop("templates")), "key 'templates' is missing"),
    "no device": (changed(lambda d: d.pop("device")), "key 'device' is missing"),
    "a time of 0": (changed(lambda d: timing(d)["us"].update(m64=0)), "m64: got 0, allowed are"),
    "a time of NaN": (changed(lambda d: timing(d)["us"].update(m64=float("nan"))), "m64: got nan"),
    "a time in words": (changed(lambda d: timing(d)["us"].update(m64="2")), "m64: got '2'"),
    "tiles that are none": (changed(lambda d: timing(d).update(repeatable=[1])), "repeatable: got"),
    "a reason that is none": (
        changed(lambda d: d["specs"][SPEC]["rejected"].update(m16=3)),
        "m16: got 3, allowed is a string",
    ),
    "no bucket": (
        changed(lambda d: d["specs"][SPEC]["buckets"].update({"x": timing(d)})),
        "'x' is no bucket",
    ),
    "specs in a list": (changed(lambda d: d.update(specs=[])), "specs: got list"),
    "a list": ("[]", "got list, allowed is an object"),
    "truncated": (winners.as_text(known())[:-40], "truncated or no JSON"),
    "empty": ("", "it is empty"),
    "blank": (" \n", "it is empty"),
    "deeply nested": ("[" * 100_000, "truncated or no JSON"),
    "no text": (b"\xff\xfe\x00", "it is no text"),
}


@pytest.mark.parametrize("what", BAD)
def test_b49_a_file_of_something_else_is_a_miss_with_a_line(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    content, told = BAD[what]
    path = tmp_path / "nvidia-h200.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Miss) as miss:
        winners.read(path, H200)
    assert str(miss.value).startswith(f"{path}: ") and told in str(miss.value)
    assert "\n" not in str(miss.value)
    # The look-up says the same line once, and finds nothing.
    monkeypatch.setenv(winners.PATH_VARIABLE, str(tmp_path))
    monkeypatch.setattr(winners, "FOLDER", tmp_path / "none")
    for _ in range(3):
        assert winners.find(H200) is None
    assert [r.getMessage() for r in caplog.records] == [
        f"no winners from {miss.value}",
        "NVIDIA H200 has not been tuned: default tiles are used; `attngen tune` looks for faster"
        " ones",
    ]


def test_a_folder_where_a_file_should_be_is_a_miss(tmp_path: Path) -> None:
    with pytest.raises(Miss, match="it cannot be read: Is a directory"):
        winners.read(tmp_path, H200)


def test_a_gpu_never_tuned_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(winners, "FOLDER", tmp_path)
    for _ in range(3):
        assert winners.find(H200) is None
    assert len(caplog.records) == 1 and caplog.records[0].levelno == logging.WARNING


def test_listed_places_come_before_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine, package = tmp_path / "mine.json", tmp_path / "package"
    winners.write(package / "nvidia-h200.json", Winners(H200))
    winners.write(mine, known())
    monkeypatch.setattr(winners, "FOLDER", package)
    assert winners.find(H200) == Winners(H200)
    monkeypatch.setenv(winners.PATH_VARIABLE, f"{tmp_path / 'nowhere'}:{mine}")
    assert winners.find(H200) == known()
    assert not caplog.records
    # A listed file of another GPU is passed over, with its line; the package's is next.
    monkeypatch.setenv(winners.PATH_VARIABLE, str(tmp_path / "other.json"))
    winners.write(tmp_path / "other.json", Winners(replace(H200, device="NVIDIA H100 80GB HBM3")))
    assert winners.find(H200) == Winners(H200)
    assert "device: got 'NVIDIA H100 80GB HBM3'" in caplog.text
    assert winners.places() == [tmp_path / "other.json", package / "nvidia-h200.json"]


def test_the_nearest_bucket_ranks_what_is_proven() -> None:
    def ranking(*sizes: int) -> list[str]:
        return known().ranking("attention_fwd", SPEC, buckets.bucket(*sizes))

    long = [f"{SPEC}_{tile}" for tile in (HOPPER, "m128", "m64")]
    assert ranking(8192, 8192, 32) == ranking(30_000, 30_000, 8) == ranking(2000, 4096, 32) == long
    short = [f"{SPEC}_m64", f"{SPEC}_m128"]
    assert ranking(1, 1, 1) == ranking(200, 250, 64) == short
    # Wrong (m16) and unproven (m32) tiles are the fastest, and are nowhere.
    assert known().ranking("attention_fwd", "attention_fwd_d64_bf16", (0, 0, 0)) == []


def test_a_bucket_without_a_proven_tile_is_no_neighbour() -> None:
    tuned = known()
    tuned.specs[SPEC].buckets[SHORT].repeatable.clear()
    (best, *_) = tuned.ranking("attention_fwd", SPEC, buckets.bucket(256, 256, 64))
    assert best == f"{SPEC}_{HOPPER}"


def test_without_a_bucket_one_tile_serves_all_shapes() -> None:
    # sqrt(2 * 90) = 13.4 and sqrt(3 * 50) = 12.2; the Hopper tile is not timed on short ones.
    assert known().ranking("attention_fwd", SPEC, None) == [f"{SPEC}_m128", f"{SPEC}_m64"]


def test_buckets_round_up_to_powers_of_two() -> None:
    assert buckets.bucket(0, 1, 2, 3, 1024, 1025) == (0, 0, 1, 2, 10, 11)
    words = buckets.words({"seqlen_q": 1000, "seqlen_kv": 1, "heads": 48})
    assert words == "seqlen_q=1024 seqlen_kv=1 heads=64"
    assert buckets.of_words(words) == (10, 0, 6)
    assert buckets.of_words("seqlen_q=0") == buckets.of_words("") == ()
    known_buckets = [(10, 10, 4), (12, 12, 4), (10,)]
    assert buckets.nearest((11, 11, 4), known_buckets) == (10, 10, 4)
    assert buckets.nearest((12, 11, 4), known_buckets) == (12, 12, 4)
    assert buckets.nearest((1,), []) is None


def test_changed_templates_are_passed_over_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tuned = known()
    tuned.templates["attention_fwd sm90"] = "of yesterday"
    for _ in range(2):
        ranking = tuned.ranking("attention_fwd", SPEC, buckets.bucket(8192, 8192, 32))
        assert ranking == [f"{SPEC}_m128", f"{SPEC}_m64"]
    (record,) = caplog.records
    assert "templates of attention_fwd (sm90) have changed" in record.getMessage()
    assert "attngen tune --op attention_fwd" in record.getMessage()


def test_a_fingerprint_follows_what_a_template_includes(monkeypatch: pytest.MonkeyPatch) -> None:
    import jinja2

    from attngen import render

    sources = {
        "triton/x.py.jinja": '{% include "shared/a.jinja" %}',
        "shared/a.jinja": '{% from "b.jinja" import c %}',
        "b.jinja": "1",
        "other.jinja": "1",
    }

    def now() -> str:
        environment = jinja2.Environment(loader=jinja2.DictLoader(dict(sources)))
        monkeypatch.setattr(render, "_environment", lambda: environment)
        return render.fingerprint.__wrapped__("x", "triton")

    first = now()
    sources["other.jinja"] = "2"
    assert now() == first
    sources["b.jinja"] = "2"
    assert now() != first


def test_names_of_machines() -> None:
    assert H200.slug == "nvidia-h200" and H200.target_name == "sm_90"
    assert replace(H200, device="NVIDIA H100 80GB HBM3").slug == "nvidia-h100-80gb-hbm3"
    assert (H200.target.arch, H200.target.shared_memory) == (90, 232_448)
    amd = Machine("AMD Instinct MI300X", "gfx942", 65_536, "3.6.0").target
    assert (amd.name, amd.backend, amd.arch, amd.warp_size) == ("gfx942", "hip", "gfx942", 64)
    assert Machine("NVIDIA B200", "10.0", 232_448, "3.6.0").target.name == "sm_100"
