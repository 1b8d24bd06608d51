"""Vectors for texts: a model's last hidden states, one a token or pooled into one a text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.layout import Layout
from ..core.spec import nearest
from ..directories import sentence_transformers
from ..directories.sentence_transformers import Pooling, Sentences
from ..models.long_texts import reads_unpadded
from ..models.recurrent.model import RecurrentModel
from ..models.transformer import TransformerModel
from . import unknown_words
from .loaded import LoadedModel
from .text import TextModel, batches


def as_pooling(name: str) -> Pooling:
    """A way of pooling by its name. Raises ValueError with the nearest names."""
    if name not in get_args(Pooling):
        raise ValueError(f"there is no pooling {name!r}; {nearest(name, get_args(Pooling))}")
    return cast("Pooling", name)


@torch.inference_mode()
def embed(run: LoadedModel, texts: Sequence[str], pooling: Pooling | None = None) -> list[Tensor]:
    """For each text (M,): the mean over its tokens, the greatest of each component ("max"), its first token ("cls") or its
    last; with "none" (T, M), one a token.

    None pools as the files of sentence-transformers in the run's directory say, normalizes where they do, and cuts a text
    that is longer than they allow, with a warning; without such files it is the mean. An encoder–decoder gives the hidden
    states of its encoder. On the CPU, in fp32. Raises ValueError for a text without tokens, which has no vector.
    """
    text_model = run.text_model
    found = sentence_transformers.read(run.path) if pooling is None and run.path is not None else None
    said = found or Sentences()
    chosen = said.pooling if pooling is None else as_pooling(pooling)
    rows = _cut([text_model.encode(_as_read(text, said)) for text in texts], text_model, said.longest)
    unknown_words.warn(run, texts, rows)
    if not all(rows):
        raise ValueError(f"text {rows.index([]) + 1} has no tokens, so there is nothing to embed")
    made: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in batches([len(row) for row in rows], padded=not reads_unpadded(text_model.model)):
        for i, states in zip(group, _hidden(text_model, [rows[i] for i in group]), strict=True):
            made[i] = _pooled(states[: len(rows[i])].float().cpu(), chosen)
    return [F.normalize(vector, dim=-1) for vector in made] if said.normalize and pooling is None else made


def _as_read(text: str, said: Sentences) -> str:
    text = said.prompt + text
    return text.lower() if said.lower else text


def _cut(rows: list[list[int]], text_model: TextModel, longest: int | None) -> list[list[int]]:
    """Rows of at most so many tokens; what the tokenizer puts behind a text stays."""
    if longest is None or all(len(row) <= longest for row in rows):
        return rows
    around = text_model.encode("")
    before = next((i for i, token in enumerate(around) if any(row[i] != token for row in rows if row)), len(around))
    after = around[before:]
    count = sum(len(row) > longest for row in rows)
    warnings.warn(
        f"{count} of {len(rows)} texts have more than {longest} tokens (max_seq_length), and are cut there",
        stacklevel=4,
    )
    return [row if len(row) <= longest else row[: max(longest - len(after), 0)] + after for row in rows]


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
    if isinstance(model, TransformerModel) and model.decoder is not None and model.encoder is not None:
        return model.encoder(ids, layout)
    return model.hidden(ids, layout=layout)


def _pooled(states: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "none":
        return states
    if pooling == "max":
        return states.amax(0)
    return states.mean(0) if pooling == "mean" else states[0 if pooling == "cls" else -1]
