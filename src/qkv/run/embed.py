"""Vectors for texts: a model's last hidden states, one a token or pooled into one a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.spec import nearest
from ..data.tokenizer import Tokenizer
from .text import batches, encode

Pooling = Literal["mean", "cls", "last", "none"]
POOLINGS = ("mean", "cls", "last", "none")


def check_pooling(pooling: str) -> None:
    if pooling not in POOLINGS:
        raise ValueError(f"there is no pooling {pooling!r}; {nearest(pooling, POOLINGS)}")


@torch.inference_mode()
def embed(model: Any, tokenizer: Tokenizer, texts: Sequence[str], pooling: Pooling = "mean") -> list[Tensor]:
    """For each text (M,), the mean over its tokens, its first or its last; with "none" (T, M), one a token.

    An encoder–decoder gives the hidden states of its encoder. On the CPU, in fp32; dropout is off.
    """
    check_pooling(pooling)
    was_training = model.training
    model.eval()
    rows = [encode(model, tokenizer, text) for text in texts]
    made: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in batches([len(row) for row in rows]):
        hidden = _hidden(model, [rows[i] for i in group])
        for i, states in zip(group, hidden, strict=True):
            made[i] = _pooled(states[: len(rows[i])].float().cpu(), pooling)
    model.train(was_training)
    return made


def _hidden(model: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T, M), padding on the right."""
    lengths = [len(row) for row in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    ids, layout = ids.to(model.device), Layout.from_lengths(lengths, device=model.device)
    return model.encoder(ids, layout) if model.is_encoder_decoder else model.hidden(ids, layout=layout)


def _pooled(states: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "none":
        return states
    return states.mean(0) if pooling == "mean" else states[0 if pooling == "cls" else -1]
