"""Small word-level tokenizers, written into folders with configuration files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers


def folder(path: Path, raw: Tokenizer, **files: Any) -> Path:
    """Write a tokenizer.json and JSON files (named without `.json`) into a folder, and return it."""
    (path / "tokenizer.json").write_text(raw.to_str(), encoding="utf-8")
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def words(*more: str) -> Tokenizer:
    """Return a tokenizer of the words `[UNK]`, `a`, `b` and `more`."""
    pieces = ["[UNK]", "a", "b", *more]
    raw = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return raw
