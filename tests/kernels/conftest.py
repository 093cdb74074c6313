"""Kernels that the catalog does not have, built when a test asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attngen import store
from attngen.ops import OPS, default_config
from attngen.variant import Variant

Build = Callable[..., None]


@pytest.fixture(scope="module")
def build(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Build the default tile of a spec, where the run-time face finds it: build(op, **fields)."""
    folder = tmp_path_factory.mktemp("kernels")

    def write(op: str, **fields: Any) -> None:
        spec = OPS[op].spec(**fields)
        store.write(Variant(spec, default_config(spec)), folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.PATH_VARIABLE, str(folder))
        yield write
