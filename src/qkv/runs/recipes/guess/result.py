"""The result of a guess: a recipe, its settings, and what they are based on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....core import yamls

KNOWN = (
    "known are tables (.csv, .tsv, .jsonl) of text pairs, labelled texts, scores, conversations, questions or numbers, "
    "CoNLL and plain text files, and folders of images, videos or sounds by class, images with boxes or masks, MIDI or "
    "text files; and two text files, line by line, as translations. "
    "Give a recipe and its settings instead (`qkv list recipes`)"
)


def setting(key: str, value: object) -> str:
    """`KEY=VALUE` that is read back as this text, path, number or list, whatever its characters."""
    value = str(value) if isinstance(value, Path) else value
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    try:
        plain = yamls.load(text, name=key) == value
    except ValueError:
        plain = False
    return f"{key}={text if plain else json.dumps(value, ensure_ascii=False)}"


@dataclass(frozen=True)
class Guess:
    """recipe: the name of a recipe. settings: `KEY=VALUE`. seen: what the guess is based on, one line each."""

    recipe: str
    settings: tuple[str, ...]
    seen: tuple[str, ...]

    def command(self, more: Sequence[str] = ()) -> str:
        """The command line that trains this, with more settings at its end."""
        return shlex.join(["qkv", "train", self.recipe, *self.settings, *more])
