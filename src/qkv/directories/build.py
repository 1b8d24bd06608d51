"""`qkv.build`: the model of a spec, which generates and can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..generation.generation_mixin import Generates
from ..models.base import ModelSpec
from ..models.build import build as build_module
from ..models.recurrent.model import Recurrent, RecurrentModel
from ..models.transformer import TransformerModel
from .save import Format, save


class Saves:
    """`save`, for a model without a run around it."""

    def save(self, path: Path | str, to: Format | None = None) -> Path:
        """Write a directory that `qkv.load` reads: `qkv.load(path).model` is this model. It has no tokenizer.

        `to` is as in `Run.save`; by default it is the Hub's format where a Hub family matches the model, else our own.
        """
        return save(self, path, to)


class Model(TransformerModel, Generates, Saves):
    """A Transformer that also generates, and can be saved."""


class RecurrentGenerator(RecurrentModel, Generates, Saves):
    """A recurrent model that also generates, and can be saved."""


def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
) -> Any:
    """An initialized model from a spec; see `qkv.models.build.build` for what each argument means."""
    cls = RecurrentGenerator if isinstance(spec, Recurrent) else Model
    return build_module(spec, device=device, dtype=dtype, seed=seed, initialized=initialized, cls=cls)
