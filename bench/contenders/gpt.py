"""The GPT that every contender trains or decodes: its sizes and its data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Shape:
    """A decoder-only model with d_ff = 4 · d_model, its head tied to its embeddings; and its batch."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    context: int
    batch: int
    dropout: float = 0.0  # of weights, residual streams and embeddings

    @property
    def tokens(self) -> int:
        """Of one training step."""
        return self.batch * self.context

    def random_ids(self, length: int) -> Tensor:
        """(batch, length), the same for all."""
        return torch.randint(self.vocab_size, (self.batch, length), generator=torch.Generator().manual_seed(0))


def check(ids: Tensor, prompt: int, new: int) -> None:
    """Greedy decoding has to have given what was asked for."""
    if ids.shape[1] != prompt + new:
        raise ValueError(f"{ids.shape[1]} tokens came back, {prompt} + {new} were asked for")
