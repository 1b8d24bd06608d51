"""Vectors for texts: a model's last hidden states, one a token or pooled into one a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.spec import nearest
from ..model.recurrent import RecurrentModel
from .long_texts import reads_unpadded
from .text import TextModel, batches

Pooling = Literal["mean", "cls", "last", "none"]


def as_pooling(name: str) -> Pooling:
    """A way of pooling by its name. Raises ValueError with the nearest names."""
    if name not in get_args(Pooling):
        raise ValueError(f"there is no pooling {name!r}; {nearest(name, get_args(Pooling))}")
    return cast("Pooling", name)


@torch.inference_mode()
def embed(text_model: TextModel, texts: Sequence[str], pooling: Pooling = "mean") -> list[Tensor]:
    """For each text (M,): the mean over its tokens, its first ("cls") or its last; with "none" (T, M), one a token.

    An encoder–decoder gives the hidden states of its encoder. On the CPU, in fp32. Raises ValueError for a text without
    tokens, which has no vector.
    """
    pooling = as_pooling(pooling)
    rows = [text_model.encode(text) for text in texts]
    if not all(rows):
        raise ValueError(f"text {rows.index([]) + 1} has no tokens, so there is nothing to embed")
    made: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in batches([len(row) for row in rows], padded=not reads_unpadded(text_model.model)):
        for i, states in zip(group, _hidden(text_model, [rows[i] for i in group]), strict=True):
            made[i] = _pooled(states[: len(rows[i])].float().cpu(), pooling)
    return made


def _hidden(text_model: TextModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, T, M), padding on the right."""
    model = text_model.model
    lengths = [len(row) for row in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    ids, layout = ids.to(model.device), Layout.from_lengths(lengths, device=model.device)
    if isinstance(model, RecurrentModel):
        return model.read(ids, layout).states
    if model.decoder is not None and model.encoder is not None:
        return model.encoder(ids, layout)
    return model.hidden(ids, layout=layout)


def _pooled(states: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "none":
        return states
    return states.mean(0) if pooling == "mean" else states[0 if pooling == "cls" else -1]
