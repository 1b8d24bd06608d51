"""Image captions and visual questions: a JSONL file that names image files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ...core.shuffle import text_hash
from ..files.json_lines import json_field, json_line
from ..files.lines import Lines
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table


class Captions(FilePerSplit, kind="captions"):
    """A JSONL file (plain or packed), one object a line: `{"image": "a/7.jpg", "answer": "a dog on a beach"}`, where a
    "question" may stand too. Without one it is a caption.

    images:   the folder that the pictures are in; that of the file by default.
    image_field, question_field, answer_field: other names of these, dotted where they are nested.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "images")

    expects: ClassVar[str] = 'a JSONL file of {"image": …, "answer": …} a line'

    images: str | None = None
    image_field: str = "image"
    question_field: str = "question"
    answer_field: str = "answer"

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """All that is said of a picture is held out with it."""
        return text_hash(example["image"].name)

    def open(self, split: Split) -> Table:
        (path,) = self.paths(split)
        folder = path.parent if self.images is None else Path(self.images).expanduser()
        return _Table(self, self.lines(path), folder)


class _Table:
    def __init__(self, spec: Captions, lines: Lines, folder: Path) -> None:
        self._spec, self._lines, self._folder = spec, lines, folder

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        spec, record = self._spec, json_line(self._lines, i)
        if isinstance(record, Skipped):
            return record
        image, answer = json_field(record, spec.image_field), json_field(record, spec.answer_field)
        where = f"{self._lines.path}, line {i + 1:,}"
        if image is None or answer is None:
            raise ValueError(f"{where}, has no text {spec.image_field if image is None else spec.answer_field!r}")
        if not answer.strip():
            return Skipped("with an empty answer")
        if not (self._folder / image).is_file():
            raise ValueError(
                f"{where}: there is no picture {str(self._folder / image)!r}; data.images names its folder"
            )
        question = json_field(record, spec.question_field) or ""
        return {"image": self._folder / image, "question": question.strip(), "answer": answer.strip(), "where": where}
