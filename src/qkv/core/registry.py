"""Registries: tables whose names are known before what they stand for is imported, and the parts of installed packages.

Packages register their parts by the entry-point group `qkv.parts`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import NamedTuple, TypeVar

GROUP = "qkv.parts"

ADDED_PATHS: set[str] = set()
"""Folders of modules under `imports`, which qkv added to `sys.path`: packages there do not count as installed."""

T = TypeVar("T")


class _Later(NamedTuple):
    home: str
    load: Callable[[ModuleType], object] | None


class LazyTable(MutableMapping[str, T]):
    """A mapping of names to values. An entry made by `later` is imported when it is first read; its name is known before."""

    def __init__(self) -> None:
        self._entries: dict[str, T | _Later] = {}

    def later(self, name: str, home: str, load: Callable[[ModuleType], T] | None = None) -> None:
        """Add an entry that `load` takes from `home`, a module or a package. Without it, importing `home` sets the entry."""
        self._entries[name] = _Later(home, load)

    def is_later(self, name: str, module: str) -> bool:
        """Whether an entry is not imported yet, and `module` is its home or in it."""
        entry = self._entries.get(name)
        return isinstance(entry, _Later) and f"{module}.".startswith(f"{entry.home}.")

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if not isinstance(entry, _Later):
            return entry
        home = import_module(entry.home)
        if entry.load is not None:
            self._entries[name] = entry.load(home)  # type: ignore[assignment]
        made = self._entries[name]
        if isinstance(made, _Later):
            raise ImportError(f"{entry.home} does not define {name}")
        return made

    def __setitem__(self, name: str, value: T) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


@cache
def import_installed() -> None:
    """Import every module of the group, once in a process. One that fails gives a warning."""
    for point in entry_points(group=GROUP):
        if point.dist is not None and str(point.dist.locate_file("")) in ADDED_PATHS:
            continue
        try:
            with redirect_stdout(sys.stderr):  # what a package prints must not mix with a command's output
                point.load()
        except Exception as error:  # whatever the package does wrong
            owner = f" of the package {point.dist.name}" if point.dist is not None else ""
            text = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"the parts {point.value}{owner} can't be imported: {text}", stacklevel=2)
