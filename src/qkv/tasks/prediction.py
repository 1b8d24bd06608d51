"""What a run says of one input: as Python has it, in words, and as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.atomic import write_file


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a run says of one input.

    input:  what was asked about, as given.
    value:  the answer, see the function that the task has in `qkv.inference.predict`.
    said:   the same in a line of text, or several.
    fields: the same for JSON, by name.
    name:   of an input that is a file, without its ending: how the files that are made of it begin.
    draw:   makes the content of those files, by how their names end; None where there are none.
    """

    input: str
    value: Any
    said: str
    fields: Mapping[str, Any]
    name: str = ""
    draw: Callable[[], Mapping[str, bytes]] | None = None

    def write(self, folder: Path) -> list[Path]:
        """Put the files into a folder, which is made where there is none, each wholly or not at all.

        Raises ValueError where there is nothing to write.
        """
        if self.draw is None:
            raise ValueError("there are no files of what this run says; leave out --out, and take --json to keep it")
        folder.mkdir(parents=True, exist_ok=True)
        made = {folder / f"{self.name}{ending}": content for ending, content in self.draw().items()}
        for path, content in made.items():
            write_file(path, content)
        return list(made)
