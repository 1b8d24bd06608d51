"""Text embeddings: a model's last hidden states, one vector per token or pooled into one per text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.spec import nearest
from ..directories import sentence_transformers
from ..directories.sentence_transformers import Pooling, Sentences
from ..generation.prompts import length_groups, padded
from ..models.long_texts import reads_unpadded
from ..models.recurrent.model import RecurrentModel
from ..models.transformer import TransformerModel
from . import unknown_words
from .loaded import LoadedModel
from .text import SLOTS, TextModel


def as_pooling(name: str) -> Pooling:
    """Check the name of a pooling. Raises ValueError with the nearest names."""
    if name not in get_args(Pooling):
        raise ValueError(f"there is no pooling {name!r}; {nearest(name, get_args(Pooling))}")
    return cast("Pooling", name)


@torch.inference_mode()
def embed(run: LoadedModel, texts: Sequence[str], pooling: Pooling | None = None) -> list[Tensor]:
    """Return a vector (M,) for each text: the mean over its tokens, the maximum of each component ("max"), its first token
    ("cls") or its last; with "none" (T, M), one per token. On the CPU, in fp32.

    None pools as the sentence-transformers files in the run's directory say, normalizes if they do, and truncates texts
    that are longer than they allow, with a warning; without such files it is the mean. Of an encoder–decoder it is the
    encoder that embeds. Raises ValueError for a text without tokens.
    """
    text_model = run.text_model
    settings = sentence_transformers.read(run.path) if pooling is None and run.path is not None else None
    settings = settings or Sentences()
    chosen = settings.pooling if pooling is None else as_pooling(pooling)
    rows = [text_model.encode(_with_prompt(text, settings)) for text in texts]
    rows = _truncated(rows, text_model, settings.longest)
    unknown_words.warn(run, texts, rows)
    if not all(rows):
        raise ValueError(f"text {rows.index([]) + 1} has no tokens, so there is nothing to embed")
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in length_groups([len(row) for row in rows], SLOTS, padded=not reads_unpadded(text_model.model)):
        for i, states in zip(group, _hidden(text_model, [rows[i] for i in group]), strict=True):
            vectors[i] = _pooled(states[: len(rows[i])].float().cpu(), chosen)
    return [F.normalize(vector, dim=-1) for vector in vectors] if settings.normalize and pooling is None else vectors


def _with_prompt(text: str, settings: Sentences) -> str:
    text = settings.prompt + text
    return text.lower() if settings.lower else text


def _truncated(rows: list[list[int]], text_model: TextModel, longest: int | None) -> list[list[int]]:
    """Cut rows to `longest` tokens; the tokens that the tokenizer appends to a text stay."""
    if longest is None or all(len(row) <= longest for row in rows):
        return rows
    around = text_model.encode("")
    before = next((i for i, token in enumerate(around) if any(row[i] != token for row in rows if row)), len(around))
    after = around[before:]
    count = sum(len(row) > longest for row in rows)
    lengths = "text is" if len(rows) == 1 else "texts are"
    warnings.warn(
        f"{count} of {len(rows)} {lengths} longer than max_seq_length ({longest}) and cut there", stacklevel=4
    )
    return [row if len(row) <= longest else row[: max(longest - len(after), 0)] + after for row in rows]


def _hidden(text_model: TextModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """The last hidden states (B, T, M), padded on the right."""
    model = text_model.model
    ids, layout = padded(rows, model.device)
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
