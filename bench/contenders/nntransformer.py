"""PyTorch's own `nn.Transformer`, with what it leaves to its users: embeddings, sinusoids, the tied output, the loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .pairs import PairShape
from .plain import PlainStep


def sinusoids(length: int, width: int) -> Tensor:
    """Positions as the Transformer's paper writes them, (length, width)."""
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Translator(nn.Module):
    def __init__(self, shape: PairShape) -> None:
        super().__init__()
        self.scale = math.sqrt(shape.d_model)
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        nn.init.normal_(self.tokens.weight, std=1 / self.scale)
        self.register_buffer("positions", sinusoids(max(shape.source, shape.target), shape.d_model))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.target))
        counts, dropout = (shape.n_layers, shape.n_layers), shape.dropout  # of weights and feed-forward layers too
        self.layers = nn.Transformer(
            shape.d_model, shape.n_heads, *counts, shape.d_ff, dropout=dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)

    def embedded(self, ids: Tensor) -> Tensor:
        return self.dropout(self.tokens(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = self.layers(self.embedded(source), self.embedded(target), tgt_mask=self.mask, tgt_is_causal=True)
        return hidden @ self.tokens.weight.T


class FullRows(PlainStep):
    """A step on rows without padding."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        sizes = PairShape(**shape)
        super().__init__(Translator(sizes), precision, compiled)
        self.source, target = sizes.random_ids()
        self.inputs, self.labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def loss(self) -> Tensor:
        return F.cross_entropy(self.run(self.source, self.inputs).flatten(0, 1), self.labels.flatten())
