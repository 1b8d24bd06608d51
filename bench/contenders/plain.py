"""The plain step around models that bring no training loop, and how all models are optimized."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

LR, BETAS, EPS, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


def facts(model: nn.Module) -> dict[str, Any]:
    return {"parameters": sum(p.numel() for p in model.parameters() if p.requires_grad)}


class PlainStep:
    """One training step as a PyTorch loop has it: forward, backward, clip by norm, fused AdamW. Subclasses give a loss.

    `run` is the model, behind torch.compile if that is asked for.
    """

    def __init__(self, model: nn.Module, precision: str, compiled: bool = False) -> None:
        self.model, self.precision = model.train(), precision
        self.run = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True
        )
        self.facts = facts(model)

    def loss(self) -> Tensor:
        raise NotImplementedError

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.precision == "fp32" else torch.autocast("cpu", torch.bfloat16)

    def __call__(self) -> dict[str, float]:
        with self.autocast():
            loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"loss": loss.item()}
