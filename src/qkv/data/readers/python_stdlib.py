"""The source code of Python's standard library: a corpus for language modeling that needs no download."""

from __future__ import annotations

import sysconfig
from functools import cache, lru_cache
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from ...core.spec import brief, nearest
from ..files.documents import FileDocument
from ..shuffle import text_hash
from ..source import Source, Split, Table
from ..tables import ConcatTable

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


class StandardLibrary(Source, kind="stdlib"):
    """The `.py` files of the standard library, without its tests; each is one document.

    A module belongs to validation, test or training by the hash of its path, so the split is the same on every machine.
    `packages` limits the corpus to some top-level names, such as `["json", "asyncio"]`.
    """

    packages: tuple[str, ...] = ()
    validation: float = Field(default=0.03, gt=0, lt=0.5)
    test: float = Field(default=0.03, gt=0, lt=0.5)

    @model_validator(mode="after")
    def _known(self) -> Self:
        existing = {_package(name) for name in _modules()} if self.packages else set()
        for package in self.packages:
            if package not in existing:
                raise ValueError(f"the standard library has no {brief(package)}; {nearest(package, sorted(existing))}")
        return self

    @property
    def fixed(self) -> bool:
        return True

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        names = [
            name
            for name in _modules()
            if (not self.packages or _package(name) in self.packages) and self._split_of(name) == split
        ]
        if not names:
            raise ValueError(f"no module of {', '.join(self.packages)} falls into {split}; name more packages")
        return ConcatTable([FileDocument(_folder() / name) for name in names])

    def _split_of(self, name: str) -> Split:
        share = text_hash(name) / 2**64
        return "validation" if share < self.validation else "test" if share < self.validation + self.test else "train"


@cache
def _package(name: str) -> str:
    """The top-level name of a module's path."""
    return Path(name).parts[0].removesuffix(".py")


def _folder() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


@lru_cache(maxsize=1)
def _modules() -> tuple[str, ...]:
    """The paths of files with UTF-8 text, relative to the standard library's folder."""
    folder = _folder()
    names = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not _LEFT_OUT & set(name.parts) and path.stat().st_size and _is_text(path):
            names.append(name.as_posix())
    if not names:
        raise ValueError(f"this Python has no standard-library sources in {brief(folder)}")
    return tuple(names)


def _is_text(path: Path) -> bool:
    try:
        return bool(path.read_bytes().decode("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False
