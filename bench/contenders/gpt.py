"""The GPT that every contender trains or decodes: its sizes, its data, and the plain step around it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LR, BETAS, EPS, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


@dataclass(frozen=True)
class Shape:
    """A decoder-only model without dropout, d_ff = 4 · d_model, its head tied to its embeddings; and its batch."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    context: int
    batch: int

    @property
    def tokens(self) -> int:
        """Of one training step."""
        return self.batch * self.context

    def random_ids(self, length: int) -> Tensor:
        """(batch, length), the same for all."""
        return torch.randint(self.vocab_size, (self.batch, length), generator=torch.Generator().manual_seed(0))


def facts(model: nn.Module, **more: Any) -> dict[str, Any]:
    return {"parameters": sum(p.numel() for p in model.parameters()), **more}


class PlainStep:
    """One training step as a PyTorch loop has it: forward, backward, clip by norm, fused AdamW. Subclasses give a loss."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        self.model, self.precision = model.train(), precision
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True
        )
        self.facts = facts(model)

    def loss(self) -> Tensor:
        raise NotImplementedError

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.precision == "fp32" else torch.autocast("cpu", DTYPES[self.precision])

    def __call__(self) -> None:
        with self.autocast():
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.facts["loss"] = float(loss.detach())


def check(ids: Tensor, prompt: int, new: int) -> None:
    """Greedy decoding has to have given what was asked for."""
    if ids.shape[1] != prompt + new:
        raise ValueError(f"{ids.shape[1]} tokens came back, {prompt} + {new} were asked for")
