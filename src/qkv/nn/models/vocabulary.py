"""Resize the vocabulary of a model: rows of known tokens are kept, rows of new tokens are the mean of the old ones."""

from __future__ import annotations

from typing import TypeVar

import torch

from ..layers.quantized import check_not_quantized
from .build import build
from .transformer import TransformerModel

Model = TypeVar("Model", bound=TransformerModel)


@torch.no_grad()
def resize_vocabulary(model: Model, vocab_size: int) -> Model:
    """Return a model with this many tokens; the given model is unchanged.

    Rows of old tokens are kept, and rows of new tokens are the mean of the old ones (Hewitt 2021, *Initializing New
    Word Embeddings for Pretrained Language Models*). No old token's probability changes by more than the share of the
    new ones. Tied parameters stay tied. Raises ValueError for fewer tokens than there are.
    """
    check_not_quantized(model, "a larger vocabulary")
    spec = model.spec
    if vocab_size < spec.vocab_size:
        raise ValueError(
            f"the model has {spec.vocab_size:,} tokens, and a vocabulary can only grow, not to {vocab_size:,}"
        )
    changes = {"vocab_size": vocab_size}
    if spec.source_vocab_size == spec.vocab_size:
        changes["source_vocab_size"] = vocab_size
    grown = build(spec.replace(changes), device=model.device, dtype=model.dtype, initialized=False, cls=type(model))
    before = model.state_dict()
    for name, tensor in grown.state_dict(keep_vars=True).items():
        old = before[name]
        tensor[: len(old)].copy_(old) if old.ndim else tensor.copy_(old)
        if old.shape != tensor.shape:
            tensor[len(old) :] = old.float().mean(0).to(old.dtype)
    return grown.train(model.training)
