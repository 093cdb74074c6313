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

try:
    from hypothesis import HealthCheck, settings

    # How fast a machine is says nothing of the code. A change is judged on the same examples each
    # time; elsewhere new ones are looked for.
    settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("ci", settings.get_profile("any"), derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "any")
    # For tests whose fixtures give what no example changes.
    suppressed = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("fixtures", settings(), suppress_health_check=suppressed)
except ModuleNotFoundError:
    pass


@pytest.fixture(scope="session")
def device() -> str:
    """The device that kernels are run on: the GPU if there is one, else the interpreter's CPU."""
    pytest.importorskip("torch", reason="kernels need torch")
    from attngen.interpret import choose_device

    return choose_device("auto")
