"""From a spec to an initialized model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .base import ModelSpec
from .initial import initialize
from .recurrent import RecurrentModel
from .transformer import TransformerModel

AnyModel = TransformerModel | RecurrentModel
"""What specs become; both are used alike."""


def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
    cls: Callable[[Any], nn.Module] | None = None,
) -> Any:
    """The model that a spec describes, its parameters drawn by (seed, parameter name).

    `cls` is the class to make in place of the spec's own, for those that add to it. On `device="meta"` nothing is allocated.
    `initialized=False` leaves parameters as they come, for weights to be loaded.
    """
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device(device):
            model = spec.module() if cls is None else cls(spec)
    finally:
        torch.set_default_dtype(before)
    if initialized and torch.device(device).type != "meta":
        initialize(model, spec.initialization, seed, spec.n_layers)
    return model
