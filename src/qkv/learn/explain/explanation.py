"""`Explanation`: the steps of one computation, as JSON or as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import json_files
from ...core.atomic import write_file
from . import page
from .steps import LabeledTable, Step


@dataclass(frozen=True)
class Explanation:
    """One computation, step by step. `about` says whose numbers they are."""

    name: str
    title: str
    about: str
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON; numbers that are not finite (−∞ of a masked score) are null."""
        steps = [step.to_dict() for step in self.steps]
        tree = {"name": self.name, "title": self.title, "about": self.about, "steps": steps}
        return dict(json_files.finite(tree))

    def to_html(self) -> str:
        """A self-contained page."""
        return page.page(self.name, self.title, self.about, self.steps)

    def save(self, path: Path | str) -> Path:
        """Write the page to a file."""
        path = Path(path)
        write_file(path, self.to_html().encode())
        return path

    def table(self, caption: str) -> LabeledTable:
        """The first table whose caption begins with `caption`. Raises KeyError if there is none."""
        for step in self.steps:
            for table in step.tables:
                if table.caption.startswith(caption):
                    return table
        raise KeyError(caption)

    def _repr_html_(self) -> str:
        return str(page.body(self.title, self.about, self.steps))
