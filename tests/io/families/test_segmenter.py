"""A segmenter is no family of the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.inference.run import Run, load


def test_a_segmenter_is_no_family_of_the_hub(tmp_path: Path) -> None:
    spec = preset("segmenter-small", image=(32, 48), d_model=24, n_layers=2, n_heads=2, d_ff=32, labels=4)
    model = build(spec, seed=0).eval()
    with pytest.warns(UserWarning, match="saved under the model type 'qkv'"):
        saved = Run(model, None).save(tmp_path / "saved")
    pixels = torch.randn(2, 3, 32, 48)
    assert torch.equal(load(saved, device="cpu").model(pixels), model(pixels))
    assert model(pixels).shape == (2, 4, 2, 3)
