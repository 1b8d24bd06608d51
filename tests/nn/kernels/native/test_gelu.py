"""Which inputs the native GELU takes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from qkv.nn.kernels import gelu as module
from qkv.nn.kernels.gelu import gelu
from qkv.nn.kernels.native import gelu as native


def test_other_tensors_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 16)
    monkeypatch.setattr(native, "run", lambda *_: pytest.fail("the kernel was called"))
    for x in (torch.randn(8), torch.randn(32).double(), torch.randn(32).bfloat16(), torch.randn(8, 8).T):
        torch.testing.assert_close(gelu(x), F.gelu(x))
    torch.func.vmap(gelu)(torch.randn(4, 16))
