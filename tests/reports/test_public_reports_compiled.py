"""Public bug reports that show where a kernel is compiled for a GPU; no GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from attngen.config import TARGETS, TileConfig
from attngen.errors import InvalidSpec
from attngen.ops import default_config, why_not
from attngen.spec_attention import AttentionFwd
from attngen.tiles_attention import shared_memory
from attngen.variant import Variant

pytestmark = pytest.mark.slow

SMALL = TileConfig(block_m=16, block_n=16, num_warps=1, num_stages=1)
OFFERED_TILES = [
    TileConfig(block_m=m, block_n=n, num_warps=8, num_stages=stages)
    for m, n, stages in product((16, 32, 64), (16, 32, 64), range(1, 6))
]


def largest_offered(spec: AttentionFwd, target: str) -> TileConfig:
    """Of the tiles that `why_not` lets pass, the one that is nearest to the target's limit."""
    offered = [c for c in OFFERED_TILES if why_not(spec, c, TARGETS[target]) is None]
    return max(offered, key=lambda config: shared_memory(spec, config))


def word(spec: AttentionFwd, config: TileConfig, target: str) -> str:
    return f"{Variant(spec, config).name}@{target}"


B22 = [
    word(AttentionFwd(head_dim=64, dtype="fp32", causal=True), SMALL, target)
    for target in ("sm_80", "sm_90")
]
B23 = [
    word(AttentionFwd(head_dim=d, head_dim_v=dv, dtype="fp16"), SMALL, "sm_90")
    for d, dv in ((72, 0), (80, 0), (96, 0), (112, 0), (160, 0), (192, 0), (64, 96))
]
B26 = [
    word(AttentionFwd(head_dim=d, dtype=dtype), SMALL, target)
    for d in (8, 16)
    for dtype, target in (("fp16", "sm_80"), ("fp32", "sm_80"), ("fp16", "gfx942"))
]
D256 = [AttentionFwd(head_dim=256, dtype=dtype, causal=True) for dtype in ("bf16", "fp32")]
B47 = [
    *(
        word(spec, default_config(spec), target)
        for spec in D256
        for target in ("sm_80", "sm_89", "sm_90")
    ),
    *(word(spec, largest_offered(spec, "sm_89"), "sm_89") for spec in D256),
]
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What compiling says of every kernel above."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_rows.py"), *B22, *B23, *B26, *B47],
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    rows: Rows = json.loads(result.stdout)
    return rows


@pytest.mark.parametrize("kernel", B22)
def test_b22_float32_products_are_not_made_of_tf32(compiled: Rows, kernel: str) -> None:
    assert compiled[kernel]["tf32"] is False


@pytest.mark.parametrize("kernel", B23)
def test_b23_head_dims_that_are_no_power_of_two_compile(compiled: Rows, kernel: str) -> None:
    assert "refused" not in compiled[kernel], compiled[kernel]
    assert compiled[kernel]["shared"] <= compiled[kernel]["shared_limit"]


@pytest.mark.parametrize("kernel", B26)
def test_b26_the_smallest_head_dims_compile(compiled: Rows, kernel: str) -> None:
    assert "refused" not in compiled[kernel], compiled[kernel]


@pytest.mark.parametrize("head_dim", [1, 4, 7, 12, 17, 264])
def test_b26_other_head_dims_are_refused_with_what_is_allowed(head_dim: int) -> None:
    with pytest.raises(InvalidSpec, match=f"head_dim: got {head_dim}, allowed is a multiple of 8"):
        AttentionFwd(head_dim=head_dim, dtype="fp16")


@pytest.mark.parametrize("kernel", B47)
def test_b47_what_is_offered_for_a_target_fits(compiled: Rows, kernel: str) -> None:
    row = compiled[kernel]
    assert "refused" not in row, row
    assert row["shared"] <= row["shared_limit"] == TARGETS[row["target"]].shared_memory


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "gfx942"])
def test_b47_what_does_not_fit_is_refused_with_the_sizes(target: str) -> None:
    tile = TileConfig(block_m=128, block_n=128, num_warps=8, num_stages=5)
    for spec in D256:
        reason = why_not(spec, tile, TARGETS[target])
        assert reason is not None
        assert str(TARGETS[target].shared_memory) in reason
        assert str(shared_memory(spec, tile)) in reason


@pytest.mark.parametrize("kernel", B47)
def test_b50_compiling_takes_less_than_30_seconds(compiled: Rows, kernel: str) -> None:
    assert compiled[kernel]["seconds"] < 30


def test_b46_launchers_are_traced_without_a_break(tmp_path: Path) -> None:
    """By torch's compiler, each as a part of one graph; test_gpu.py compiles and runs one."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("dynamo_rows.py")],
        env=kept | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    breaks = json.loads(result.stdout.splitlines()[-1])
    assert breaks == dict.fromkeys(breaks) and len(breaks) == 8
