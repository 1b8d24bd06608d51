"""A short piece of music, its tokenizer, and a model that finds all words equally likely."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qkv.data import train_tokenizer
from qkv.data.media.note_names import Frame, frames_to_text
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.music.task import Music

PIECE: list[Frame] = [(64, 60), (), (67, 48), (66,)] * 6


TOKENIZER = train_tokenizer(TokenizerSpec.from_dict({"kind": "word"}), Music(transpose=3).texts({"frames": PIECE}))


def items(task: Music, training: bool = False, seed: int = 0) -> list[Item]:
    example = {"text": frames_to_text(PIECE), "frames": PIECE}
    return task.items([example], TOKENIZER, RandomContext(np.random.default_rng(seed), training))  # type: ignore[return-value]


class Uniform(nn.Module):
    """Gives every word the same probability."""

    def forward(self, ids: Tensor, **_: Any) -> Tensor:
        return torch.zeros(*ids.shape, TOKENIZER.vocab_size)
