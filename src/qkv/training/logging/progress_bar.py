"""Progress display of a training: a bar in a terminal, a line every 15 seconds elsewhere."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_EVERY = 15.0  # seconds between lines if there is no terminal


class ProgressBar:
    """Shows the fraction of the run that is done, the last numbers and the time left. Silent when not `shown`."""

    def __init__(
        self,
        console: Console | None,
        max_steps: int | None,
        max_time: float | None,
        shown: bool,
        max_epochs: int | None = None,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.max_steps, self.max_time, self.max_epochs, self.shown = max_steps, max_time, max_epochs, shown
        self.epochs = 0.0
        self._bar: Progress | None = None
        self._task: Any = None
        self._numbers = ""
        self._said = -_EVERY
        self._first = 0
        self._start: tuple[float, float] | None = None

    def __enter__(self) -> Self:
        if self.shown and self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[numbers]}"))
            self._bar = Progress(*columns, console=self.console, refresh_per_second=2)
            total = 1.0 if self.max_steps or self.max_epochs or self.max_time else None
            self._task = self._bar.add_task(self._place(self._first), total=total, numbers="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def begins_at(self, step: int) -> None:
        """The step that a resumed run has already taken; told before the display is entered."""
        self._first = step

    def at(self, step: int, elapsed: float, epochs: float = 0.0) -> None:
        """Move the bar."""
        self.epochs = epochs
        self._start = self._start or (self._by_length(step), elapsed)
        if self._bar is not None:
            done, left = self.done(step, elapsed), self.left(step, elapsed)
            numbers = self._numbers + (f"  {span(left)} left" if left is not None else "")
            with suppress(OSError):
                self._bar.update(self._task, description=self._place(step), completed=done, numbers=numbers)

    def train(self, line: dict[str, Any]) -> None:
        """New numbers from the log."""
        shown = (("loss", line["loss"], ".4f"), ("lr", line["lr"], ".2e"), ("tokens/s", line["tokens_per_s"], ",.0f"))
        parts = [f"{name} {value:{form}}" for name, value, form in shown if value is not None]
        parts += [f"MFU {line['mfu']:.0%}"] if line.get("mfu") is not None else []
        self._numbers = "  ".join(parts)
        now = time.monotonic()
        if self._bar is None and now - self._said >= _EVERY:
            self._said = now
            left = self.left(line["step"], line["elapsed"])
            self.say(f"{self._place(line['step'])}  {self._numbers}" + (f"  {span(left)} left" if left else ""))

    def evaluation(self, step: int, metrics: dict[str, float], remark: str) -> None:
        """What an evaluation gave; `remark` says of which weights, or that it is the best."""
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.say(f"{self._place(step)}  evaluation: {numbers}  {remark}".rstrip())

    def say(self, text: str) -> None:
        if self.shown:
            with suppress(OSError):  # the terminal was closed: the run is not to be lost with it
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    # -- how far, how long --------------------------------------------------------------------------------------

    def done(self, step: int, elapsed: float) -> float:
        """The fraction of the run behind us, by steps, epochs or time, whichever is nearest its end."""
        by_time = elapsed / self.max_time if self.max_time else 0.0
        return min(max(self._by_length(step), by_time), 1.0)

    def left(self, step: int, elapsed: float) -> float | None:
        """Seconds to the end at the pace of this session, or None if nothing is known."""
        done = self._by_length(step)
        first, since = self._start or (done, elapsed)
        by_time = max(self.max_time - elapsed, 0.0) if self.max_time else None
        if done <= first:
            return by_time
        by_length = max(1.0 - done, 0.0) * (elapsed - since) / (done - first)
        return by_length if by_time is None else min(by_length, by_time)

    def _by_length(self, step: int) -> float:
        """The fraction of the run behind us by steps and epochs alone."""
        by_steps = step / self.max_steps if self.max_steps else 0.0
        return max(by_steps, self.epochs / self.max_epochs if self.max_epochs else 0.0)

    def _place(self, step: int) -> str:
        place = f"step {step:,}" + (f" of {self.max_steps:,}" if self.max_steps and step <= self.max_steps else "")
        return f"{place}, epoch {self.epochs:.1f} of {self.max_epochs:,}" if self.max_epochs else place


def span(seconds: float) -> str:
    """Seconds as 42s, 7m05s or 3h20m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"
