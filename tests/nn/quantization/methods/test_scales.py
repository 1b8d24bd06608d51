"""Scales of groups: those with the least error of the outputs, found by trying all."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.methods import scales as module
from qkv.nn.quantization.methods.scales import rounded, scales_of


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("large", [False, True])
def test_each_group_has_the_shrink_with_the_least_error(symmetric: bool, large: bool, monkeypatch) -> None:
    """Row by row and group by group in float64: d E[x xᵀ] dᵀ of a group; for large groups only its diagonal."""
    if large:
        monkeypatch.setattr(module, "WHOLE", 4)
    generator = torch.Generator().manual_seed(1)
    format, group = format_of("int4"), 8
    w, x = torch.randn(6, 16, generator=generator), torch.randn(40, 16, generator=generator)
    w[:, ::5] *= 6
    second = x.T @ x / 40
    scales, _ = scales_of(w, format, group, symmetric, second)
    shrunk = 0
    for row in range(6):
        for n in range(2):
            part, block = w[row, 8 * n : 8 * n + 8], second[8 * n : 8 * n + 8, 8 * n : 8 * n + 8].double()
            block = torch.diag(block.diagonal()) if large else block
            errors = {}
            for i in range(17):
                fit = format.fit(part[None, None], symmetric, 1 - i / 40)
                d = (rounded(part[None, None], format, fit)[0, 0] - part).double()
                errors[float(fit[0])] = float(d @ block @ d)
            least = min(errors.values())
            assert errors[min(errors, key=lambda s: abs(s - float(scales[row, n])))] == pytest.approx(least, rel=1e-3)
            shrunk += float(scales[row, n]) < 0.99 * max(errors)
    assert shrunk > 1, "some scales are shrunk"


def test_without_inputs_the_largest_weight_sets_the_scale() -> None:
    scales, zeros = scales_of(torch.tensor([[7.5, 1.0, 0.0, -15.0]]), format_of("int4"), 2)
    assert scales.tolist() == [[1.0, 2.0]] and zeros is None
