"""Every test of products runs by the C++ kernels and by PyTorch's operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from qkv.nn.kernels.native import compiler
from qkv.nn.kernels.native import products as native


@pytest.fixture(params=["native", "PyTorch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "PyTorch":
        monkeypatch.setattr(native, "serves", lambda x, matrices, integer=False: False)
    elif compiler.library("products") is None:
        pytest.skip("there is no C++ compiler here, and the kernels can't be built")
    with torch.no_grad():
        yield str(request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of matrices of each call of the kernels."""
    if compiler.library("products") is None:
        pytest.skip("there is no C++ compiler here, and the kernels can't be built")
    seen, original = [], native.products

    def noted(x: torch.Tensor, matrices: tuple[native.Matrix, ...], *more: bool) -> torch.Tensor:
        seen.append(len(matrices))
        return original(x, matrices, *more)

    monkeypatch.setattr(native, "products", noted)
    return seen
