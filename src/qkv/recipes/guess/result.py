"""The result of a guess: a recipe, its settings, and what they are based on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

KNOWN = (
    "known are tables (.csv, .tsv, .jsonl) of text pairs, labelled texts, scores, conversations, questions or numbers, "
    "CoNLL and plain text files, and folders of images, videos or sounds by class, images with boxes or masks, MIDI or "
    "text files. "
    "Give a recipe and its settings instead (`qkv list recipes`)"
)


@dataclass(frozen=True)
class Guess:
    """recipe: the name of a recipe. settings: `KEY=VALUE`. seen: what the guess is based on, one line each."""

    recipe: str
    settings: tuple[str, ...]
    seen: tuple[str, ...]

    def command(self, more: Sequence[str] = ()) -> str:
        """The command line that trains this, with more settings at its end."""
        return shlex.join(["qkv", "train", self.recipe, *self.settings, *more])
