"""Detect cheaply whether a submodule, tensor or setting of a module has changed since a snapshot of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

_TABLES = ("_parameters", "_buffers", "_modules")


class HasModules(Protocol):
    """A module, as far as a snapshot reads it."""

    def modules(self) -> Iterator[nn.Module]: ...


class Snapshot:
    """The submodules, tensors and settings that a module had, and the addresses of its tensors."""

    def __init__(self, module: HasModules) -> None:
        self._sizes: list[tuple[dict[str, Any], int]] = []
        self._values: list[tuple[dict[str, Any], str, Any]] = []
        for i, each in enumerate(module.modules()):
            settings = vars(each)
            tables = [settings[name] for name in _TABLES]
            self._sizes += [(table, len(table)) for table in (*tables, *((settings,) if i else ()))]
            self._values += [(table, name, value) for table in tables for name, value in table.items()]
            if i:  # the module itself isn't kept alive by what it has
                own = (item for item in settings.items() if not item[0].startswith("_"))
                self._values += [(settings, name, value) for name, value in own]
        tensors = (value for _, _, value in self._values if isinstance(value, Tensor))
        self._places = [(tensor, tensor.data_ptr()) for tensor in tensors]

    def holds(self) -> bool:
        """Whether nothing was added, removed, replaced or moved."""
        return (
            all(len(table) == size for table, size in self._sizes)
            and all(table.get(name) is value for table, name, value in self._values)
            and all(tensor.data_ptr() == place for tensor, place in self._places)
        )
