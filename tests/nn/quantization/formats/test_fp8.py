"""FP8: scales by the largest weight over 448, and rounding as in PyTorch's E4M3."""

from __future__ import annotations

import torch

from qkv.nn.quantization.formats.fp8 import FP8


def test_numbers_by_hand() -> None:
    """With a scale of 1, steps are 32 between 256 and 448, and 1/512 below 1/64."""
    format = FP8()
    groups = torch.tensor([[[448.0, -300.0, 0.007, 1.06]]])
    scales, zeros = format.fit(groups)
    assert zeros is None and scales.tolist() == [[1.0]]
    codes = format.encode(groups, scales[..., None], None)
    assert codes.dtype == torch.float8_e4m3fn
    assert format.decode(codes, scales[..., None], None).tolist() == [[[448.0, -288.0, 4 / 512, 1.0]]]


def test_what_a_shrunk_scale_leaves_out_is_clamped_and_zeros_have_a_scale() -> None:
    format = FP8()
    scales, _ = format.fit(torch.tensor([[[4.0, -4.0, 1.0]]]), shrink=0.5)
    codes = format.encode(torch.tensor([[[4.0, -4.0, 1.0]]]), scales[..., None], None)
    torch.testing.assert_close(format.decode(codes, scales[..., None], None), torch.tensor([[[2.0, -2.0, 1.0]]]))
    assert format.fit(torch.zeros(1, 1, 4))[0].tolist() == [[1.0]]
