"""Kernels that read quantized keys and values."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.native import quantized_kv as native
from qkv.nn.kv_cache.quantization import quantize


@pytest.fixture
def unit() -> None:
    if native._amx() is None:
        pytest.skip("this CPU has no matrix unit, or there is no C++ compiler")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_in_its_row(unit: None, bad: float) -> None:
    codes = quantize(torch.randn(1, 1, 128, 64), 4, "channel", 128)
    q, found = torch.randn(1, 1, 4, 64), torch.empty(1, 1, 4, 128)
    q[0, 0, 1, 3] = bad
    native.scores(q, codes, found)
    assert not found[0, 0, 1].isfinite().any() and found[0, 0, [0, 2, 3]].isfinite().all()
