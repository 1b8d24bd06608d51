"""The source code of Python's standard library, a language modeling corpus that needs no download."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from ...core.shuffle import text_hash
from ...core.spec import nearest
from ..files.documents import FileDocument
from ..source import Source, Split, Table
from ..tables import ConcatTable

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


class StandardLibrary(Source, kind="stdlib"):
    """The standard library's `.py` files without its tests, each one document.

    A module belongs to validation, test or training by the hash of its path, so the split is the same on every machine.
    `packages` limits the corpus to some top-level names, such as `["json", "asyncio"]`.
    """

    packages: tuple[str, ...] = ()
    validation: float = Field(default=0.03, gt=0, lt=0.5)
    test: float = Field(default=0.03, gt=0, lt=0.5)

    @model_validator(mode="after")
    def _known(self) -> Self:
        there = {Path(name).parts[0].removesuffix(".py") for name in _modules()}
        for package in self.packages:
            if package not in there:
                raise ValueError(f"the standard library has no {package!r}; {nearest(package, sorted(there))}")
        return self

    @property
    def fixed(self) -> bool:
        return True

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        names = [name for name in _modules() if self._chosen(name) and self._split_of(name) == split]
        if not names:
            raise ValueError(f"no module of {', '.join(self.packages)} falls into {split}; name more packages")
        return ConcatTable([FileDocument(_folder() / name) for name in names])

    def _chosen(self, name: str) -> bool:
        return not self.packages or Path(name).parts[0].removesuffix(".py") in self.packages

    def _split_of(self, name: str) -> Split:
        place = text_hash(name) / 2**64
        return "validation" if place < self.validation else "test" if place < self.validation + self.test else "train"


def _folder() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


@lru_cache(maxsize=1)
def _modules() -> tuple[str, ...]:
    """Paths below the standard library's folder, of files that hold UTF-8 text."""
    folder = _folder()
    found = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not _LEFT_OUT & set(name.parts) and path.stat().st_size and _is_text(path):
            found.append(name.as_posix())
    if not found:
        raise ValueError(f"this Python has no standard-library sources in {str(folder)!r}")
    return tuple(found)


def _is_text(path: Path) -> bool:
    try:
        return bool(path.read_bytes().decode("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False
