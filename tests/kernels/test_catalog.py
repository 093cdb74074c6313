"""Every committed kernel against the reference on every case: on the GPU, else interpreted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

from attngen import finder, load  # noqa: E402
from attngen.catalog import catalog  # noqa: E402
from attngen.verify import verify  # noqa: E402


@pytest.mark.parametrize("name", catalog())
def test_a_committed_kernel_is_right(device: str, name: str) -> None:
    if reason := finder.cannot_run(catalog()[name], device):
        pytest.skip(reason)
    report = verify(load(name), catalog()[name], device)
    assert not report.failed, str(report)
    assert len(report.verdicts) >= 16
