"""Resize the vocabulary of a model: rows of known tokens are kept, rows of new tokens are the mean of the old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from ...core.several import worded
from ..layers.quantized import check_not_quantized
from .build import build
from .initialization import Values
from .transformer import Transformer, TransformerModel

Model = TypeVar("Model", bound=TransformerModel)


@torch.no_grad()
@worded
def resize_vocabulary(model: Model, vocab_size: int) -> Model:
    """Return a model with this many tokens; the given model is unchanged.

    Rows of old tokens are kept, and rows of new tokens are the mean of the old ones (Hewitt 2021, *Initializing New
    Word Embeddings for Pretrained Language Models*). No old token's probability changes by more than the share of the
    new ones. Tied parameters stay tied. Raises ValueError for fewer tokens than there are.
    """
    check_not_quantized(model, "a larger vocabulary")
    spec = grown_spec(model.spec, vocab_size)
    grown = build(spec, device=model.device, dtype=model.dtype, initialized=False, cls=type(model))
    grown.origin = model.origin
    before = model.state_dict()
    for name, tensor in grown.state_dict(keep_vars=True).items():
        tensor.copy_(_grown(before[name], tensor.shape))
    return grown.train(model.training)


def resize_outline(model: Model, values: Values, vocab_size: int) -> tuple[Model, Values]:
    """The same for a model whose parameters are on the meta device, and for their values."""
    spec = grown_spec(model.spec, vocab_size)
    grown = build(spec, device="meta", dtype=model.dtype, cls=type(model))
    grown.origin = model.origin
    stored = model.state_dict()
    for name, buffer in model.named_buffers():
        path, _, own = name.rpartition(".")
        shape = grown.get_buffer(name).shape
        setattr(grown.get_submodule(path), own, _grown(buffer, shape) if name in stored else buffer)
    shapes = {name: parameter.shape for name, parameter in grown.named_parameters(remove_duplicate=False)}
    return grown.train(model.training), GrownValues(values, shapes)


class GrownValues:
    """Values of parameters with rows for new tokens, which are the mean of the old ones."""

    def __init__(self, values: Values, shapes: Mapping[str, torch.Size]) -> None:
        self.values, self.shapes = values, shapes

    def __contains__(self, path: str) -> bool:
        return path in self.values

    def value(self, path: str) -> Tensor:
        """The whole value of a parameter, on the host."""
        return _grown(self.values.value(path), self.shapes[path])


def _grown(old: Tensor, shape: torch.Size) -> Tensor:
    if old.shape == shape:
        return old
    new = old.float().mean(0).to(old.dtype).expand(shape[0] - len(old), *old.shape[1:])
    return torch.cat([old, new])


@worded
def grown_spec(spec: Transformer, vocab_size: int) -> Transformer:
    """The spec of a model with this many tokens. Raises ValueError for fewer than it has."""
    if vocab_size < spec.vocab_size:
        raise ValueError(
            f"the model has {spec.vocab_size:,} tokens, and a vocabulary can only grow, not to {vocab_size:,}"
        )
    changes = {"vocab_size": vocab_size}
    if spec.source_vocab_size == spec.vocab_size:
        changes["source_vocab_size"] = vocab_size
    return spec.replace(changes)
