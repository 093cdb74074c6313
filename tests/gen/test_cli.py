"""The command line as a person meets it: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attngen import store
from attngen.catalog import catalog
from attngen.cli import main

NAME = "attention_fwd_d64_fp16_causal_m64_n64_w4_s2"


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_build_by_options_by_name_and_again(tmp_path: Path) -> None:
    first = run("build", "--head-dim", 64, "--dtype", "fp16", "--causal", "--out", tmp_path)
    assert first.exit_code == 0 and first.output.startswith("wrote ")
    assert run("build", NAME, "--out", tmp_path).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = run("build", NAME, "--out", tmp_path)
    assert again.output == f"unchanged {tmp_path / NAME}.py\n"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert NAME in store.names(tmp_path)


def test_neither_causal_nor_no_causal_builds_both(tmp_path: Path) -> None:
    run("build", "--head-dim", 64, "--head-dim", 32, "--dtype", "fp16", "--out", tmp_path)
    assert len(store.names(tmp_path)) == 4
    assert sum("causal" in name for name in store.names(tmp_path)) == 2


def test_build_with_nothing_builds_the_catalog(tmp_path: Path) -> None:
    assert run("build", "--out", tmp_path).exit_code == 0
    assert store.names(tmp_path) == sorted(catalog())


def test_build_of_merges(tmp_path: Path) -> None:
    words = ["--head-dim", 128, "--dtype", "bf16", "--out", tmp_path]
    assert run("build", "--op", "merge_state", *words).exit_code == 0
    assert run("build", "--op", "merge_state", "--base2", "--out-fp8", *words).exit_code == 0
    assert run("build", "--op", "merge_states", "--ragged", "--block-m", 4, *words).exit_code == 0
    assert store.names(tmp_path) == [
        "merge_state_d128_bf16_m16_w4_s1",
        "merge_state_d128_bf16_out_fp8_base2_m16_w4_s1",
        "merge_states_d128_bf16_ragged_m4_w1_s1",
    ]
    assert run("check", tmp_path).exit_code == 0


def test_build_of_every_feature(tmp_path: Path) -> None:
    features = ["--window", "--softcap", "--alibi", "--bias", "--mask", "--sinks"]
    result = run("build", "--head-dim", 64, "--dtype", "bf16", *features, "--out", tmp_path)
    assert result.exit_code == 0
    assert all("window_softcap_alibi_bias_mask_sinks" in name for name in store.names(tmp_path))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--head-dim", "0", "--dtype", "bf16"], "head_dim: got 0, allowed is a multiple of 8"),
        (["--head-dim", "-1", "--dtype", "bf16"], "head_dim: got -1"),
        (["--head-dim", "7", "--dtype", "bf16"], "head_dim: got 7"),
        (["--head-dim", "300", "--dtype", "bf16"], "head_dim: got 300"),
        (["--head-dim", "x", "--dtype", "bf16"], "'x' is not a valid integer"),
        (
            ["--head-dim", "64", "--dtype", "bf17"],
            "dtype: got 'bf17', allowed are fp16, bf16, fp32",
        ),
        (["--head-dim", "64", "--dtype", "float64"], "dtype: got 'float64'"),
        (["--head-dim", "64"], "--dtype is missing"),
        (["--dtype", "bf16"], "--head-dim is missing"),
        (["--head-dim", "64", "--dtype", "bf16", "--block-m", "48"], "block_m: got 48"),
        (["--op", "attention_bwd", "--head-dim", "64"], "'attention_bwd' is not"),
        (["--op", "merge_state", "--head-dim", "513", "--dtype", "bf16"], "head_dim: got 513"),
        (["--op", "merge_state", "--head-dim", "0", "--dtype", "bf16"], "allowed is 1 to 512"),
        (
            ["--op", "merge_states", "--head-dim", "7", "--dtype", "bf16", "--block-n", "16"],
            "block_n: got 16, allowed is none",
        ),
        (
            ["--op", "merge_state", "--head-dim", "7", "--dtype", "fp32", "--out-fp32"],
            "output: got out_fp32 with dtype fp32, which says the same twice",
        ),
        (
            [
                "--op",
                "merge_state",
                "--head-dim",
                "7",
                "--dtype",
                "fp16",
                "--out-fp32",
                "--out-fp8",
            ],
            "output: got out_fp32, out_fp8, allowed is one of them",
        ),
        *(
            (
                ["--op", op, "--head-dim", "64", "--dtype", "bf16", *words],
                f"{words[0]} is no option",
            )
            for op, words in (
                ("merge_state", ["--causal"]),
                ("merge_state", ["--no-causal"]),
                ("merge_state", ["--ragged"]),
                ("merge_states", ["--head-dim-v", "64"]),
                ("merge_states", ["--softcap"]),
                ("attention_fwd", ["--base2"]),
                ("attention_fwd", ["--out-fp8"]),
            )
        ),
        (["no_such_name"], "name: got 'no_such_name', allowed is <op>[_<size>...]"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(tmp_path: Path, words: list[str], told: str) -> None:
    result = run("build", *words, "--out", tmp_path)
    assert result.exit_code == 2
    assert told in result.output and "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_outside_a_checkout_out_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "in_checkout", lambda: False)
    result = run("build", NAME)
    assert result.exit_code == 2 and "--out is missing" in result.output


def test_check_of_a_clean_a_changed_and_an_orphaned_file(tmp_path: Path) -> None:
    run("build", NAME, "--out", tmp_path)
    assert run("check", tmp_path).exit_code == 0
    path = tmp_path / f"{NAME}.py"
    path.write_text(path.read_text().replace("l = l * alpha", "l = l"))
    changed = run("check", tmp_path)
    assert changed.exit_code == 1
    assert "+    l = l * alpha + tl.sum(p, 1)" in changed.output
    mend = f"attngen build {NAME} --out {tmp_path}"
    assert mend in changed.output
    run(*mend.split()[1:])
    assert run("check", tmp_path).exit_code == 0
    (tmp_path / "attention_fwd_old.py").write_text("")
    orphan = run("check", tmp_path)
    assert orphan.exit_code == 1 and f"rm {tmp_path / 'attention_fwd_old.py'}" in orphan.output


def test_check_of_the_catalog_sees_what_is_missing(tmp_path: Path) -> None:
    differences = list(store.compare(tmp_path, catalog().values()))
    assert {d.kind for d in differences} == {"missing"} and len(differences) == len(catalog())


def test_check_as_json(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    result = run("check", tmp_path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == [{"name": "x", "kind": "orphan", "diff": ""}]


def test_check_of_no_folder() -> None:
    assert run("check", "no/such/folder").exit_code == 2


def test_show_and_diff() -> None:
    shown = run("show", NAME)
    assert shown.exit_code == 0 and f"def {NAME}(" in shown.output
    assert run("diff", NAME, NAME).output == ""
    assert "-BLOCK_N = tl.constexpr(64)" in run("diff", NAME, NAME.replace("n64", "n32")).output
    assert run("show", "nothing").exit_code == 2


def test_list(tmp_path: Path) -> None:
    run("build", NAME, "--out", tmp_path)
    assert run("list", "--out", tmp_path).output == f"{NAME}\n"
    assert json.loads(run("list", "--out", tmp_path, "--json").output) == {str(tmp_path): [NAME]}
    assert set(catalog()) <= set(run("list").output.split())


def test_verify_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    result = run("verify", NAME)
    assert result.exit_code == 1
    assert "no GPU" in result.output and "--interpret" in result.output


def test_bench_without_a_gpu_offers_no_option_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    result = run("bench")
    assert result.exit_code == 1
    assert "bench times kernels on a GPU, and there is none" in result.output
    assert "--interpret" not in result.output


def test_verify_of_what_is_not_built(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = run("verify", NAME.replace("m64", "m16"), "--interpret", "--out", tmp_path)
    assert result.exit_code == 2
    assert f"attngen build {NAME.replace('m64', 'm16')}" in result.output


def test_verify_of_a_kernel_that_reads_past_the_keys(tmp_path: Path) -> None:
    """The address is refused, said in a line of the report, and the process lives on."""
    pytest.importorskip("torch")
    run("build", NAME, "--out", tmp_path)
    path = tmp_path / f"{NAME}.py"
    text = path.read_text()
    assert text.count("mask=seen[:, None]") == 2
    path.write_text(text.replace("mask=seen[:, None]", "mask=seen[:, None] | True"))
    result = run("verify", NAME, "--interpret", "--out", tmp_path)
    assert result.exit_code == 1
    assert "FAIL" in result.output and "Traceback" not in result.output
    assert re.search(r"one query, one key: load: \d+ of \d+ addresses lie outside", result.output)


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from attngen import doctor

    assert run("doctor").exit_code == 0
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert "torch: missing; needed for calling kernels" in run("doctor").output


def test_help_names_every_command() -> None:
    output = run("--help").output
    for command in (
        "build",
        "list",
        "show",
        "diff",
        "check",
        "compile",
        "verify",
        "roofline",
        "doctor",
    ):
        assert f"  {command} " in output
