"""Inputs whose results can be written down: scores of 0, and v whose row j holds one value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Attend = Callable[..., tuple[torch.Tensor, torch.Tensor]]
FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32


def zeros(device: str, length: int, head_dim: int = 16, dtype: torch.dtype = FP16) -> torch.Tensor:
    """q or k that make every score 0."""
    return torch.zeros((1, length, 1, head_dim), dtype=dtype, device=device)


def column(
    device: str, values: object, columns: int = 16, dtype: torch.dtype = FP16
) -> torch.Tensor:
    """v whose row j is filled with values[j]."""
    rows = torch.as_tensor(values, dtype=torch.float32)
    return rows.to(device, dtype)[None, :, None, None].repeat(1, 1, 1, columns)


def close(got: torch.Tensor, expected: object, atol: float = 1e-6) -> None:
    """Every value is as expected, which broadcasts; infinities exactly, and no NaN."""
    assert not got.isnan().any()
    right = np.broadcast_to(np.asarray(expected, dtype=np.float64), got.shape)
    np.testing.assert_allclose(got.double().cpu().numpy(), right, rtol=0, atol=atol)


def rows(values: object) -> np.ndarray:
    """What o [seqlen_q, head_dim_v] is compared with, one value a row."""
    return np.asarray(values, dtype=np.float64)[:, None]
