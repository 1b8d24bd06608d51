"""Numbers that are finite, also if their sum is not."""

from __future__ import annotations

import torch

from qkv.io.hub.finite import is_finite


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        most = torch.full((3000,), torch.finfo(dtype).max, dtype=dtype)
        assert is_finite(most) and is_finite(torch.cat([most, -most])) and is_finite(most[:0])
        for number in (float("nan"), float("inf"), -float("inf")):
            most[1500] = number
            assert not is_finite(most)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        assert is_finite(torch.arange(-200.0, 200).to(dtype)) and not is_finite(
            torch.tensor([1.0, float("nan")]).to(dtype)
        )
