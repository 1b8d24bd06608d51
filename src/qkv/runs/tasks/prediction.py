"""Predictions of tasks: what a task needs of a trained model, and the prediction for each input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol, Self

from ...core import several
from ...core.atomic import claim, write_files
from ...data.batching.settings import Batching
from ...data.source import Source
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.layout import Contents, claim_folder
from ...nn.models.build import AnyModel

FILES = Contents(
    "the files of predictions",
    (
        *("*.mask.png", "*.classes.png", "*.restored.png", "*.upscaled.png", "*.boxes.svg", "*.forecast.csv"),
        *("*.continued.mid", "piece.mid"),
    ),
)
"""What the tasks of qkv write; a directory of predictions may hold these of several commands."""


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

    def shifted(self, ids: Sequence[int]) -> list[int]:
        """The input of a decoder that reads the encoder's text one token behind."""

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

        Raises ValueError if there is nothing to write, without `overwrite` if one of the files exists, and if the folder is
        a run, a model or the input's folder, or holds anything but predictions.
        """
        if self.draw is None:
            raise ValueError(
                "these predictions have no files to write; give --out a table (.csv, .tsv, .jsonl, .parquet), or use --json"
            )
        folder = several.path(folder, "the folder")
        drawn = {f"{self.name}{suffix}": (suffix, content) for suffix, content in self.draw().items()}
        other = [suffix for name, (suffix, _) in drawn.items() if not FILES.allows(PurePath(name))]
        _claim_folder(folder, [Path(self.input)] if self.input else [], other)
        contents = {folder / name: content for name, (_, content) in drawn.items()}
        for path in contents:
            claim(path, overwrite)
        write_files(contents)
        return list(contents)


_claimed: set[Path] = set()  # folders that this process writes predictions into


def _claim_folder(folder: Path, inputs: Sequence[Path], suffixes: Iterable[str]) -> None:
    """`claim_folder` for predictions, with the suffixes of a task from elsewhere. What else is in the folder is looked at
    once in a process."""
    place = folder.resolve()
    if place not in _claimed or not place.is_dir() or place in (path.resolve().parent for path in inputs):
        claim_folder(folder, Contents(FILES.what, (*FILES.files, *(f"*{suffix}" for suffix in suffixes))), inputs)
        _claimed.add(place)
