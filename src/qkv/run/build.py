"""`qkv.build`: the model of a spec, with everything that the rooms below `run` give it."""

from __future__ import annotations

from typing import Any

import torch

from ..generate.mixin import Generates
from ..model.base import ModelSpec
from ..model.build import build as build_module
from ..model.recurrent import Recurrent, RecurrentModel
from ..model.transformer import TransformerModel


class Model(TransformerModel, Generates):
    """A Transformer that also generates."""


class RecurrentGenerator(RecurrentModel, Generates):
    """A recurrent model that also generates."""


def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
) -> Any:
    """An initialized model from a spec; see `qkv.model.build.build` for what each argument means."""
    cls = RecurrentGenerator if isinstance(spec, Recurrent) else Model
    return build_module(spec, device=device, dtype=dtype, seed=seed, initialized=initialized, cls=cls)
