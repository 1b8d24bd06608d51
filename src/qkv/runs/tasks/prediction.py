"""Predictions of tasks: what a task needs of a trained model, and the prediction for each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from ...core import several
from ...core.atomic import claim, make_folder, write_file
from ...data.batching.settings import Batching
from ...data.source import Source
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.build import AnyModel


class TrainedModel(Protocol):
    """What a task needs of a `Run` to predict with it."""

    @property
    def model(self) -> AnyModel:
        """The model in evaluation mode, on its device."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that it was trained with; None if it reads no text."""

    @property
    def words(self) -> Tokenizer:
        """The tokenizer. Raises ValueError if there is none."""

    @property
    def batching(self) -> Batching:
        """How large batches are."""

    @property
    def source(self) -> Source | None:
        """The data that it was trained on; None if unknown."""


class Line(str):
    """The texts of one input, joined by tabs, which keeps them apart where one of them has a tab itself."""

    parts: tuple[str, ...]

    def __new__(cls, parts: tuple[str, ...]) -> Self:
        line = super().__new__(cls, "\t".join(parts))
        line.parts = parts
        return line


def parts_of(line: str) -> list[str]:
    """The texts of one input: a `Line`'s texts, or what the tabs of a text separate."""
    return list(line.parts) if isinstance(line, Line) else line.split("\t")


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one input.

    input:  the text or path that was given.
    value:  the prediction as a Python value; the docstring of the task's `predict` says of which type.
    text:   the same as text, in one line or several.
    fields: the same for JSON, by name.
    name:   for an input file, its name without the suffix: what the names of output files begin with.
    draw:   returns the contents of the output files, by suffix; None if there are none.
    """

    input: str
    value: Any
    text: str
    fields: Mapping[str, Any]
    name: str = ""
    draw: Callable[[], Mapping[str, bytes]] | None = None

    @classmethod
    def of_number(cls, line: str, score: float) -> Prediction:
        """A number as the prediction for a line of text."""
        return cls(line, score, f"{score:.4f}", {"score": score})

    def write(self, folder: Path | str, overwrite: bool = True) -> list[Path]:
        """Write the output files atomically into a folder, which is created if it is missing; return their paths.

        Raises ValueError if there is nothing to write, and without `overwrite` if one of the files exists.
        """
        if self.draw is None:
            raise ValueError(
                "these predictions have no files to write; give --out a table (.csv, .tsv, .jsonl, .parquet), or use --json"
            )
        folder = several.path(folder, "the folder")
        make_folder(folder)
        contents = {folder / f"{self.name}{suffix}": content for suffix, content in self.draw().items()}
        for path in contents:
            claim(path, overwrite)
        for path, content in contents.items():
            write_file(path, content)
        return list(contents)
