"""Small models whose parameters are all different, for kernels that run all their layers in one call, and their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

import qkv
from qkv.nn.models import stack
from qkv.nn.models.transformer import TransformerModel

T = TypeVar("T")


def varied_model(
    preset: str, sizes: dict[str, Any], changes: dict[str, Any], dtype: torch.dtype = torch.float32
) -> TransformerModel:
    """A preset of two layers with changes of its decoder's blocks (`*.`), and noise on its parameters."""
    own_sizes = {key: value for key, value in sizes.items() if (preset, key) != ("openai-gpt", "d_ff")}
    spec = qkv.preset(preset, **own_sizes)
    own = {f"decoder.blocks.{i}.{key[2:]}": value for key, value in changes.items() for i in range(2)}
    built = qkv.build(spec.replace(own) if own else spec, dtype=dtype, seed=0).eval()
    assert isinstance(built, TransformerModel)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += torch.randn(parameter.shape, generator=random).to(dtype) * 0.1
    return built


def counted_calls(monkeypatch: pytest.MonkeyPatch, kernels: Any, number: Callable[..., int]) -> list[int]:
    """A list that gets a number, made from the arguments, at each call of `kernels.run`."""
    found: list[int] = []
    run = kernels.run

    def counted(*arguments: Any) -> None:
        found.append(number(*arguments))
        run(*arguments)

    monkeypatch.setattr(kernels, "run", counted)
    return found


def by_modules(monkeypatch: pytest.MonkeyPatch, run: Callable[[], T], replaced: str = "fused_step") -> T:
    """What `run` gives if the modules compute what `replaced` does otherwise."""
    with monkeypatch.context() as patched:
        patched.setattr(stack, replaced, lambda *about: None)
        return run()


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())
