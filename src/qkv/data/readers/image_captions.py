"""Image captions and visual questions: a JSONL file that names image files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ...core.spec import brief
from ..files.inside import inside
from ..files.json_lines import json_field
from ..files.text_files import NamedRecords
from ..shuffle import text_hash
from ..source import Example, Skipped, Split, Table


class Captions(NamedRecords, kind="captions"):
    """A JSONL file (plain or compressed), one object per line: `{"image": "a/7.jpg", "answer": "a dog on a beach"}`, and
    optionally a "question". Without one, the answer is a caption.

    images:   the folder with the images; by default the folder of the file. Files outside of it are not read.
    image_field, question_field, answer_field: the names of the fields, dotted if nested.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "images")

    expects: ClassVar[str] = 'a JSONL file of {"image": …, "answer": …} a line'

    images: str | None = None
    image_field: str = "image"
    question_field: str = "question"
    answer_field: str = "answer"

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """All captions and questions of an image are held out together."""
        return text_hash(example["image"].name)

    def open(self, split: Split) -> Table:
        path = self.paths(split)[0]
        folder = path.parent if self.images is None else Path(self.images).expanduser()
        return self.records(path, lambda record, where: self.example(record, folder, where))

    def example(self, record: object, folder: Path, where: str) -> Example | Skipped:
        """The example in a line's JSON value, or why it is skipped."""
        image, answer = json_field(record, self.image_field), json_field(record, self.answer_field)
        if image is None or answer is None:
            raise ValueError(f"{where}, has no text {brief(self.image_field if image is None else self.answer_field)}")
        if not answer.strip():
            return Skipped("with an empty answer")
        file = inside(folder, image, f"{where}: {self.image_field}", "data.images=FOLDER names another")
        if not file.is_file():
            raise ValueError(f"{where}: there is no picture {brief(file)}; set data.images to its folder")
        question = json_field(record, self.question_field) or ""
        return {"image": file, "question": question.strip(), "answer": answer.strip(), "where": where}
