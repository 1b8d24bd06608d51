"""From a spec to an initialized model."""

from __future__ import annotations

from typing import TypeVar

import torch

from .initial import initialize
from .transformer import Transformer, TransformerModel

Built = TypeVar("Built", bound=TransformerModel)


def build(
    spec: Transformer,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
    cls: type[Built] = TransformerModel,  # type: ignore[assignment]
) -> Built:
    """The model that a spec describes, its parameters drawn by (seed, parameter name).

    `cls` is the class to make, for those that add to it. On `device="meta"` nothing is allocated. `initialized=False`
    leaves parameters as they come, for weights to be loaded.
    """
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device(device):
            model = cls(spec)
    finally:
        torch.set_default_dtype(before)
    if initialized and torch.device(device).type != "meta":
        layers = max(stack.n_layers for _, stack in spec.stacks())
        initialize(model, spec.initialization, seed, layers)
    return model
