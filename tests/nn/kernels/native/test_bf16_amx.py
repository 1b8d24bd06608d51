"""Which widths, dtypes and scales the kernels of bf16 matrix units take. `cpu/test_bf16_amx.py` tests their results."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.native import bf16_amx


def half(width: int = 64, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(1, 4, 1, width, dtype=dtype)


def test_only_bf16_of_some_widths_and_positive_scales_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_amx, "LIKELY", True)
    assert bf16_amx.fits(half(), half(), half(24), 0.1)
    assert bf16_amx.fits(half(bf16_amx.WIDEST), half(bf16_amx.WIDEST), half(), 0.1)
    assert not bf16_amx.fits(half(), half(), half(bf16_amx.WIDEST + 1), 0.1)
    assert not bf16_amx.fits(half(), half(dtype=torch.float32), half(), 0.1)
    assert not bf16_amx.fits(half(), half(), half(), 0.0) and not bf16_amx.fits(half(), half(), half(), -1.0)


def test_nothing_fits_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_amx, "LIKELY", False)
    assert not bf16_amx.fits(half(), half(), half(), 0.1) and not bf16_amx.serves(half(), half(), half(), 0.1)
