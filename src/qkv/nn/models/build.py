"""`build`: make a model from its spec and initialize its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from .base import ModelModule, ModelSpec
from .initialization import Draws, drawn_whole, initialize, parameter_seed
from .transformer import TransformerModel
from .unfilled import Outlining, Unfilled, without_parameters

AnyModel = TransformerModel | ModelModule
"""Modules of model specs; all are used in the same way."""


def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
    cls: Callable[[Any], nn.Module] | None = None,
) -> Any:
    """Make the model that a spec describes and initialize its parameters by (seed, parameter name).

    `qkv.build` makes the same module with `generate` and `save`. Use this one only if neither is needed, in packages
    below `generation` and `io`.

    A module can define the initial value of a parameter by a method `initial(name)`, which returns a number, a tensor or
    None. Values that a module fills in itself, as `nn.LayerNorm` and `nn.Linear` do, are kept; if they are random, they
    depend on `seed` too. All other parameters are drawn by the spec's initialization.

    `cls` is a subclass to make in place of the spec's own module class. `device="meta"` allocates no memory.
    `initialized=False` leaves parameters uninitialized, for weights to be loaded.
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


def outline(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    cls: Callable[[Any], nn.Module] | None = None,
) -> tuple[Any, Draws | None]:
    """Make a model whose parameters are on the meta device, and the draws of their initial values, which `build` gives too.

    Buffers are real, and so are parameters that a module fills itself, such as parameters of `nn.Linear`. If a module
    fills a part of one, the model is made as `build` makes it, and the draws are None.
    """

    def made(keep: Set[int] = frozenset()) -> tuple[Any, Outlining]:
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(dtype)
            with _seeded(torch.device(device), seed), torch.device(device), Outlining(keep) as outlining:
                return spec.module() if cls is None else cls(spec), outlining
        finally:
            torch.set_default_dtype(before)

    model, outlining = made()
    if outlining.late and not drawn_whole(model, outlining.late.values()):
        model, outlining = made(set(outlining.late))
        outlining.lost = outlining.lost or bool(outlining.late) or outlining.lacks_numbers
    if outlining.lost:
        return build(spec, device=device, dtype=dtype, seed=seed, cls=cls), None
    return model, Draws(model, spec.initialization, seed, spec.n_layers)


def with_own_buffers(spec: ModelSpec, device: torch.device | str, dtype: torch.dtype) -> AnyModel:
    """The model of a spec with real buffers, as `build` makes them on this device and in this dtype, and parameters on the
    meta device."""
    with without_parameters():
        return build(spec, device=device, dtype=dtype, initialized=False)


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the global generators while modules are made, and restore them afterwards."""
    gpus = [device] if device.type == "cuda" else []
    module_seed = parameter_seed(seed, "")
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(module_seed)
        if gpus:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(module_seed)
        yield
