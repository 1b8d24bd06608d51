"""`qkv.build`: the model of a spec, which generates and can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import nn

from ...core.device import choose
from ...core.several import shown, worded
from ...generation.generation_mixin import GenerationMixin
from ...nn.models.base import ModelModule, ModelSpec
from ...nn.models.build import build as build_module
from ...nn.models.build import outline as outline_module
from ...nn.models.dual_encoder import DualEncoder, DualEncoderModel
from ...nn.models.initialization import Draws
from ...nn.models.recurrent.model import Recurrent, RecurrentModel
from ...nn.models.transformer import Transformer, TransformerModel

if TYPE_CHECKING:
    from .save import Format


class Saves:
    """Mixin with `save`, for a model without a run."""

    def save(self, path: Path | str, to: Format | None = None, *, overwrite: bool = False) -> Path:
        """Write a directory that `qkv.load` reads: `qkv.load(path).model` is this model. It has no tokenizer.

        `to` and `overwrite` are as in `Run.save`; by default the format is the Hub's if a Hub family matches the model,
        else our own. A model of the Hub keeps what its configuration said, such as its model type and its special tokens.
        """
        from .save import save

        return save(self, path, to, origin=getattr(self, "origin", None), overwrite=overwrite)

    save_pretrained = save  # transformers' name


class Model(TransformerModel, GenerationMixin, Saves):
    """A Transformer that also generates, and can be saved."""


class RecurrentGenerator(RecurrentModel, GenerationMixin, Saves):
    """A recurrent model that also generates, and can be saved."""


class SavableDualEncoder(DualEncoderModel, Saves):
    """A dual encoder that can be saved."""


class GenerativeModel(ModelModule, GenerationMixin, Saves):
    """Base class of model modules defined outside qkv. With `forward`, `start` and `step` it generates, and can be saved."""


_CLASSES = {
    Transformer: Model,
    Recurrent: RecurrentGenerator,
    DualEncoder: SavableDualEncoder,
}  # any other spec: the class of `spec.module()`


@overload
def build(
    spec: Transformer,
    *,
    device: torch.device | str = ...,
    dtype: torch.dtype = ...,
    seed: int = ...,
    initialized: bool = ...,
) -> Model: ...
@overload
def build(
    spec: Recurrent,
    *,
    device: torch.device | str = ...,
    dtype: torch.dtype = ...,
    seed: int = ...,
    initialized: bool = ...,
) -> RecurrentGenerator: ...
@overload
def build(
    spec: DualEncoder,
    *,
    device: torch.device | str = ...,
    dtype: torch.dtype = ...,
    seed: int = ...,
    initialized: bool = ...,
) -> SavableDualEncoder: ...
@overload
def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = ...,
    dtype: torch.dtype = ...,
    seed: int = ...,
    initialized: bool = ...,
) -> Any: ...
@worded
def build(
    spec: ModelSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    initialized: bool = True,
) -> nn.Module:
    """An initialized model from a spec, which also generates and can be saved: the function for users, `qkv.build`.

    `qkv.nn.models.build.build` makes the same module without `generate` and `save`, for packages below this one. It
    describes the arguments.
    """
    if not isinstance(spec, ModelSpec):
        raise ValueError(f"a spec is that of a model, such as qkv.preset('gpt2'), not {shown(spec)}")
    where = torch.device("meta") if device == "meta" else choose(device)
    return build_module(spec, device=where, dtype=dtype, seed=seed, initialized=initialized, cls=_class_of(spec))


def outline(spec: ModelSpec, *, device: torch.device, seed: int = 0) -> tuple[Any, Draws | None]:
    """The same model without memory for its parameters, and their draws; see `qkv.nn.models.build.outline`."""
    return outline_module(spec, device=device, seed=seed, cls=_class_of(spec))


def _class_of(spec: ModelSpec) -> Any:
    return next((cls for kind, cls in _CLASSES.items() if isinstance(spec, kind)), None)
