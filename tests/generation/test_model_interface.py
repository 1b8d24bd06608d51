"""`evaluating`: dropout and gradients are off inside, and every module is back in its mode afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qkv.generation.model_interface import evaluating


def test_modules_are_back_in_their_mode_even_after_an_error() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Dropout(0.5))
    model[1].eval()
    modes = [module.training for module in model.modules()]
    assert True in modes and False in modes
    with pytest.raises(RuntimeError, match="inside"), evaluating(model):
        assert not any(module.training for module in model.modules()) and torch.is_inference_mode_enabled()
        raise RuntimeError("inside")
    assert [module.training for module in model.modules()] == modes and not torch.is_inference_mode_enabled()
