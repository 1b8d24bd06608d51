"""The encoder–decoder that contenders train: its sizes, and rows of random tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PairShape:
    """One table of embeddings for source, target and output; `source` and `target` are the rows' lengths."""

    vocab_size: int
    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    batch: int
    source: int
    target: int
    dropout: float = 0.0  # of residual streams and embeddings

    def random_ids(self) -> tuple[Tensor, Tensor]:
        """(batch, source), and (batch, target + 1): inputs are its first `target` columns, labels its last."""
        generator = torch.Generator().manual_seed(0)
        source = torch.randint(4, self.vocab_size, (self.batch, self.source), generator=generator)
        target = torch.randint(4, self.vocab_size, (self.batch, self.target + 1), generator=generator)
        return source, target
