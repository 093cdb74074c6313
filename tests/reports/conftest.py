"""Attention by kernels of small tiles, built when a report first needs them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_inputs import Attend

from attngen import runtime, runtime_decode, runtime_layouts, runtime_merge, store
from attngen.config import TileConfig
from attngen.spec_attention import (
    Attention,
    AttentionDecode,
    AttentionFwd,
    AttentionPaged,
    AttentionVarlen,
)
from attngen.spec_merge import MergeState, MergeStates
from attngen.variant import Variant

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
Ops = dict[type[Attention], dict[str, bool]]
TILE = TileConfig(block_m=16, block_n=16, num_warps=1, num_stages=1)
MERGE_TILE = TileConfig(block_m=8, block_n=0, num_warps=1, num_stages=1)


def _specs(op: type[Attention], q: Any, v: Any, options: Any, extra: Any) -> Iterator[Attention]:
    """The specs that a call may end in: a step of decode does without causal."""
    given = {
        "window": tuple(options.get("window_size", (-1, -1))) != (-1, -1),
        "alibi": options.get("alibi_slopes") is not None,
    }
    features = {f.name: options.get(f.name) is not None for f in op.features} | given | extra
    for causal in {False, options.get("causal", False)}:
        yield op(
            head_dim=q.shape[-1],
            head_dim_v=v.shape[-1],
            dtype=DTYPES[q.dtype],
            **features | {"causal": causal},
        )


def _attends(
    folder: Path, ops: Ops, operator: Callable[..., Any], *lookups: Any
) -> Iterator[Attend]:
    """An operator with return_lse, whose kernels are built in a folder when they are needed."""

    def call(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *lengths: Any, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for op, extra in ops.items():
            for spec in _specs(op, q, v, options, extra):
                store.write(Variant(spec, TILE), folder)
        with warnings.catch_warnings():
            # Triton's interpreter takes the bounds of loops from arrays of one element.
            warnings.filterwarnings("ignore", "Conversion of an array", DeprecationWarning)
            o, lse = operator(q, k, v, *lengths, return_lse=True, **options)
        return o, lse

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.PATH_VARIABLE, str(folder), prepend=os.pathsep)
        for forget in lookups:
            forget()
        yield call
    for forget in lookups:
        forget()


@pytest.fixture(scope="session")
def attend(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.attention` with return_lse, on tensors of the device that kernels run on."""
    folder = tmp_path_factory.mktemp("kernels")
    yield from _attends(folder, {AttentionFwd: {}}, runtime.attention, runtime.forget)


@pytest.fixture(scope="session")
def attend_varlen(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.attention_varlen` likewise."""
    folder, operator = tmp_path_factory.mktemp("varlen"), runtime_layouts.attention_varlen
    yield from _attends(
        folder, {AttentionVarlen: {}}, operator, runtime_layouts._kernel.cache_clear
    )


@pytest.fixture(scope="session")
def attend_paged(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.attention_paged` likewise, a step of decode with pages among its calls."""
    folder, operator = tmp_path_factory.mktemp("paged"), runtime_layouts.attention_paged
    ops: Ops = {AttentionPaged: {}, AttentionDecode: {"paged": True}}
    lookups = (runtime_layouts._kernel.cache_clear, runtime_decode._kernel.cache_clear)
    yield from _attends(folder, ops, operator, *lookups)


@pytest.fixture(scope="session")
def attend_decode(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.attention_decode` likewise."""
    folder, operator = tmp_path_factory.mktemp("decode"), runtime_decode.attention_decode
    forget = runtime_decode._kernel.cache_clear
    yield from _attends(folder, {AttentionDecode: {}}, operator, forget)


@pytest.fixture(scope="session")
def merge(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attend]:
    """`attngen.merge_state` of four tensors, `attngen.merge_states` of two."""
    folder = tmp_path_factory.mktemp("merges")

    def call(*tensors: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        spec = {4: MergeState, 2: MergeStates}[len(tensors)]
        names = {"head_dim": tensors[0].shape[-1], "dtype": DTYPES[tensors[0].dtype]}
        store.write(Variant(spec(**names), MERGE_TILE), folder)
        if spec is MergeStates:
            return runtime_merge.merge_states(*tensors, **options)
        merged = runtime_merge.merge_state(*tensors, **options)
        assert isinstance(merged, tuple)
        return merged

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.PATH_VARIABLE, str(folder), prepend=os.pathsep)
        runtime_merge._kernel.cache_clear()
        yield call
    runtime_merge._kernel.cache_clear()
