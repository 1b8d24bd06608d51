"""`LazyTable`: a mapping whose names are known before what they stand for is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class _Later(NamedTuple):
    home: str
    load: Callable[[], object] | None


class LazyTable(MutableMapping[str, T]):
    """A mapping of names to values. An entry made by `later` is imported when it is first read; its name is known before."""

    def __init__(self) -> None:
        self._entries: dict[str, T | _Later] = {}

    def later(self, name: str, home: str, load: Callable[[], T] | None = None) -> None:
        """Add an entry that `load` makes. Without it, importing `home`, a module or a package, sets the entry."""
        self._entries[name] = _Later(home, load)

    def is_later(self, name: str, module: str) -> bool:
        """Whether an entry is not imported yet, and `module` is its home or in it."""
        entry = self._entries.get(name)
        return isinstance(entry, _Later) and f"{module}.".startswith(f"{entry.home}.")

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if not isinstance(entry, _Later):
            return entry
        if entry.load is None:
            import_module(entry.home)
        else:
            self._entries[name] = entry.load()  # type: ignore[assignment]
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
