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

    # How fast a machine is says nothing of the code, and no example changes what a fixture gives.
    # A change is judged on the same examples each time; elsewhere new ones are looked for.
    unsaid = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    patient = settings(deadline=None, suppress_health_check=unsaid)
    settings.register_profile("any", patient)
    settings.register_profile("ci", patient, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "any")
except ModuleNotFoundError:
    pass


@pytest.fixture(scope="session")
def device() -> str:
    """The device that kernels are run on: the GPU if there is one, else the interpreter's CPU."""
    pytest.importorskip("torch", reason="kernels need torch")
    from attngen.interpret import choose_device

    return choose_device("auto")
