"""`LiveTable`: a table in a terminal that follows the runs of a study in training; elsewhere, a line for each run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table


class LiveTable(ABC):
    """Context manager that redraws `table()` in a terminal every second."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    @abstractmethod
    def table(self) -> Table:
        """Return the current table."""

    def line(self, text: str) -> None:
        """Print a line if the output is not a terminal."""
        if not self.console.is_terminal:
            self.console.print(escape(text), highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self.table, refresh_per_second=1, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
