"""Quantized tensors of a file: those that don't fit together are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from packed_layouts import D_IN, D_OUT, opened


def test_tensors_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    config = {"quant_method": "awq", "bits": 4}
    tensors = {"a.qweight": torch.zeros(D_IN, 2, dtype=torch.int32), "a.qzeros": torch.zeros(3, 2, dtype=torch.int32)}
    with pytest.raises(ValueError, match=r"a is a matrix of .* don't divide its rows"):
        opened(tmp_path, tensors | {"a.scales": torch.ones(3, D_OUT)}, config).matrix("a.weight")
    with pytest.raises(ValueError, match="weights are quantized, and none is"):
        opened(tmp_path, {}, config)
