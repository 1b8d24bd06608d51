"""`qkv.build`: the model of a spec, with everything that the rooms below `run` give it."""

from __future__ import annotations

import torch

from ..generate.mixin import Generates
from ..model.build import build as build_module
from ..model.transformer import Transformer, TransformerModel


class Model(TransformerModel, Generates):
    """A Transformer that also generates."""


def build(
    spec: Transformer,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
) -> Model:
    """An initialized model from a spec; see `qkv.model.build.build` for what each argument means."""
    return build_module(spec, device=device, dtype=dtype, seed=seed, initialized=initialized, cls=Model)
