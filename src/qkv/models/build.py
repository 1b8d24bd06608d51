"""From a spec to an initialized model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from .base import ModelModule, ModelSpec
from .initialization import initialize, parameter_seed
from .transformer import TransformerModel
from .unfilled import Unfilled

AnyModel = TransformerModel | ModelModule
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

    A module says what a parameter begins with by a method `initial(name)`, which gives a number, a tensor or None. Numbers
    that a module wrote itself, as `nn.LayerNorm` and `nn.Linear` do, are kept; random ones follow from `seed` too. All other
    parameters are drawn by the spec's initialization.

    `cls` is the class to make in place of the spec's own, for those that add to it. On `device="meta"` nothing is allocated.
    `initialized=False` leaves parameters as they come, for weights to be loaded.
    """
    fills = initialized and torch.device(device).type != "meta"
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with _seeded(torch.device(device), seed), torch.device(device), Unfilled() if fills else nullcontext():
            model = spec.module() if cls is None else cls(spec)
    finally:
        torch.set_default_dtype(before)
    if fills:
        initialize(model, spec.initialization, seed, spec.n_layers)
    return model


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """What modules draw themselves follows from the seed, and leaves the caller's generators as they were."""
    cards = [device] if device.type == "cuda" else []
    own = parameter_seed(seed, "")
    with torch.random.fork_rng(cards):
        torch.default_generator.manual_seed(own)
        if cards:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(own)
        yield
