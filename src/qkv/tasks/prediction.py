"""Predictions of tasks: what a task is given of a trained model, and what it returns for each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.atomic import write_file
from ..data.batching.settings import Batching
from ..data.source import Source
from ..models.build import AnyModel
from ..tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """What a task's `predict` is given of a trained model.

    model:     in evaluation mode, on its device.
    tokenizer: the one that it was trained with; None where it reads no text.
    batching:  how large batches are.
    source:    the data that it was trained on; None where they are not known.
    """

    model: AnyModel
    tokenizer: Tokenizer | None = None
    batching: Batching = field(default_factory=Batching)
    source: Source | None = None

    @property
    def words(self) -> Tokenizer:
        """The tokenizer. Raises ValueError where there is none."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer, so it reads no texts")
        return self.tokenizer


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction for one input.

    input:  as given.
    value:  the prediction as a Python value; the task's `predict` says of which type.
    text:   the same as text, in one line or several.
    fields: the same for JSON, by name.
    name:   of an input that is a file, its name without the ending: how the names of output files begin.
    draw:   returns the content of those files, by how their names end; None where there are none.
    """

    input: str
    value: Any
    text: str
    fields: Mapping[str, Any]
    name: str = ""
    draw: Callable[[], Mapping[str, bytes]] | None = None

    def write(self, folder: Path) -> list[Path]:
        """Write the files into a folder, which is created where it is missing, each wholly or not at all.

        Raises ValueError where there is nothing to write.
        """
        if self.draw is None:
            raise ValueError("there are no files of these predictions; leave out --out, and use --json to keep them")
        folder.mkdir(parents=True, exist_ok=True)
        contents = {folder / f"{self.name}{ending}": content for ending, content in self.draw().items()}
        for path, content in contents.items():
            write_file(path, content)
        return list(contents)
