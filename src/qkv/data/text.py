"""Running text for language models: text files and folders, and JSONL with a text or with a prompt and its answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from .files import PIECE, BlockDocuments, FileDocument, Joined, LineDocuments, Lines, open_bytes
from .holdout import FileSource
from .pairs import json_field, json_line, pair
from .shuffle import text_hash
from .sources import Example, Skipped, Split, Table

SMALLEST_PIECE = 1 << 10  # bytes
_FILES_TO_SPLIT_BY = 50  # with fewer files than this, pieces rather than files are held out


class Text(FileSource, kind="text"):
    """Text files. A path is a file, or a folder whose files with one of the `suffixes` are read, also in subfolders.

    `documents` says what one document is: a whole "file", a "line", or a "block" of lines between empty lines.
    """

    path: str | tuple[str, ...] = ()
    validation_path: str | tuple[str, ...] = ()
    test_path: str | tuple[str, ...] = ()
    suffixes: tuple[str, ...] = Field(default=(".txt",), min_length=1)
    documents: Literal["file", "line", "block"] = "file"

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        given = (given,) if isinstance(given, str) else given
        if not given and split == "train":
            raise ValueError("no training data: give path, a text file or a folder of them")
        return tuple(file for name in given for file in self._files(Path(name).expanduser()))

    def _files(self, path: Path) -> list[Path]:
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise ValueError(f"there is no file or folder {str(path)!r}")
        endings = (*self.suffixes, *(f"{suffix}.gz" for suffix in self.suffixes))
        found = sorted(file for file in path.rglob("*") if file.name.endswith(endings) and file.is_file())
        filled = [file for file in found if file.stat().st_size]
        if not filled:
            state = "only empty files" if found else "no file"
            raise ValueError(
                f"{str(path)!r} holds {state} with the suffix {' or '.join(self.suffixes)}; see `suffixes`"
            )
        return filled

    def open(self, split: Split) -> Table:
        paths = self.paths(split)
        if self.documents != "file":
            documents = LineDocuments if self.documents == "line" else BlockDocuments
            return Joined([documents(path) for path in paths])
        if len(paths) >= _FILES_TO_SPLIT_BY:
            base = os.path.commonpath(path.parent for path in paths)
            return Joined([FileDocument(path) for path in paths], [path.relative_to(base).as_posix() for path in paths])
        total = sum(len(open_bytes(path)) for path in paths)
        piece = min(PIECE, max(SMALLEST_PIECE, total // 100))  # so that a small corpus has pieces to hold out
        return Joined([FileDocument(path, piece) for path in paths])

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        if isinstance(table, Joined) and table.names:
            return text_hash(table.names[table.table_of(i)])
        return super().hold_out_key(table, i, example)


class JsonLines(FileSource, kind="jsonl"):
    """One JSON object a line, with a `text`; or, when both are named, with a `prompt` and its `answer`.

    A prompt and its answer come as a pair: a decoder-only model is trained on the answer alone, given the prompt.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    text: str = "text"
    prompt: str | None = None
    answer: str | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.prompt is None) != (self.answer is None):
            raise ValueError("prompt and answer are given together, or neither")
        return self

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        if given is None and split == "train":
            raise ValueError("no training data: give path, a JSONL file")
        return (Path(given).expanduser(),) if given else ()

    def open(self, split: Split) -> Table:
        return _JsonTable(Lines(self.paths(split)[0]), self)


class _JsonTable:
    def __init__(self, lines: Lines, spec: JsonLines) -> None:
        self._lines, self._spec = lines, spec

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        record, spec = json_line(self._lines, i), self._spec
        if isinstance(record, Skipped):
            return record
        names = [spec.text] if spec.prompt is None or spec.answer is None else [spec.prompt, spec.answer]
        found = [json_field(record, name) for name in names]
        if any(text is None for text in found):
            missing = names[found.index(None)]
            return Skipped(f"without a text {missing!r}")
        texts = [text for text in found if text is not None]
        if len(texts) == 2:
            return pair(texts[0], texts[1])
        return {"text": texts[0]} if texts[0].strip() else Skipped("empty")
