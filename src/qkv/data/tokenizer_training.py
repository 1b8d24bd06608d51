"""Train a tokenizer on the lines of text files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .files.lines import lines_of_files
from .tokenizers.tokenizer import Tokenizer, train
from .tokenizers.training.spec import TokenizerSpec, Trace


def train_from_files(
    spec: TokenizerSpec | str, files: Iterable[str | Path], *, progress: bool = False, trace: Trace | None = None
) -> Tokenizer:
    """`train` on the lines of text files, plain or .gz. Raises ValueError for one that is missing, empty or not UTF-8."""
    return train(spec, lines_of_files(files), progress=progress, trace=trace)
