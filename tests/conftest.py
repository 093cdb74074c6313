"""Without a GPU kernels run in Triton's interpreter, which wants to know before triton starts."""

from __future__ import annotations

import os

try:
    import torch

    HAS_GPU = torch.cuda.is_available()
except ModuleNotFoundError:
    HAS_GPU = False

if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"

import pytest


@pytest.fixture(scope="session")
def device() -> str:
    """The device that kernels are run on: the GPU if there is one, else the interpreter's CPU."""
    pytest.importorskip("torch", reason="kernels need torch")
    from attngen.interpret import choose_device

    return choose_device("auto")
