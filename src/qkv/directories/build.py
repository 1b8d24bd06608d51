"""`qkv.build`: the model of a spec, with everything that the rooms below `run` give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from ..generation.generation_mixin import Generates
from ..models.base import ModelSpec
from ..models.build import build as build_module
from ..models.recurrent.model import Recurrent, RecurrentModel
from ..models.transformer import TransformerModel


class Saves:
    """`save`, for a model without a run around it."""

    def save(self, path: Path | str, to: Literal["hub", "qkv"] | None = None) -> Path:
        """Write a directory that `qkv.load` reads: `qkv.load(path).model` is this model. There is no tokenizer in it.

        `to` is as in `Run.save`: the Hub's format where a family of the Hub is the model, else our own, if nothing is said.
        """
        from ..inference.run import Run

        return Run(self, None).save(path, to)  # type: ignore[arg-type]


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
