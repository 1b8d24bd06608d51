"""NF4: levels by their definition, and codes of the nearest level."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm

from qkv.nn.quantization.formats.nf4 import LEVELS, NF4


def test_levels_are_quantiles_of_a_normal_distribution() -> None:
    """Dettmers et al. 2023, appendix E: 8 quantiles above 0, 7 below, and 0, divided by the largest."""
    offset = (31 / 32 + 29 / 30) / 2
    above = [norm.ppf(offset + (0.5 - offset) * i / 8) for i in range(8)]
    below = [-norm.ppf(offset + (0.5 - offset) * i / 7) for i in range(7)]
    expected = sorted([*above, *below, 0.0])
    assert list(LEVELS) == pytest.approx([level / expected[-1] for level in expected], abs=1e-6)


def test_codes_by_hand() -> None:
    """The scale is the largest weight, 2; 0.16 / 2 = 0.08 is nearest to level 8, and −0.1 / 2 to −0.091 …, level 6."""
    format = NF4()
    groups = torch.tensor([[[2.0, -2.0, 0.16, -0.1]]])
    scales, zeros = format.fit(groups)
    assert zeros is None and scales.tolist() == [[2.0]]
    codes = format.encode(groups, scales[..., None], None)
    assert codes.tolist() == [[[15, 0, 8, 6]]]
    decoded = format.decode(codes, scales[..., None], None)
    torch.testing.assert_close(decoded, torch.tensor([[[2.0, -2.0, 0.1591606, -0.1821001]]]))
    assert format.fit(groups, shrink=0.5)[0].tolist() == [[1.0]]
    assert format.fit(torch.zeros(1, 1, 4))[0].tolist() == [[1.0]], "a group of zeros has a scale"
