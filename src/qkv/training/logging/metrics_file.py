"""`metrics.jsonl`, the log of a training: one JSON object a line, passed on to TensorBoard and W&B if these are on.

Every line has a `type` and the `step` it belongs to:

    train   loss, nll, lr, grad_norm, tokens, tokens_per_s, mfu, elapsed; means over the steps since the last such line
    eval    the evaluation's metrics, elapsed
    event   event: "started", "resumed", "bad step", "empty step", "overflow", "not saved", "interrupted", "ended" …
    final   the evaluation of the weights that the run delivers, if they were not evaluated on the way

JSON has no word for a number that isn't one: NaN and the infinities are written as the strings "NaN", "Infinity" and
"-Infinity", which Python's `float` reads back; nothing is hidden. `null` means that nothing was measured.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...core.atomic import make_folder, write_file
from ...core.several import path as path_of


def to_json(value: object) -> Any:
    """Replace the numbers that JSON can't represent by strings, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(value: object) -> Any:
    """The inverse of `to_json`."""
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    return [from_json(item) for item in value] if isinstance(value, list) else value


def read_metrics(path: Path | str) -> Iterator[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, numbers as numbers. A line that a killed process left unfinished is skipped."""
    with path_of(path, "a log of metrics").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield from_json(json.loads(line))
            except ValueError:
                continue


Callback = Callable[[dict[str, Any]], object]
"""Called with every line of the log, `{"type": "train", "step": 10, "loss": 2.31, …}`."""


class Logger(Protocol):
    """What shows the numbers of the lines "train", "eval" and "final" as curves named `<type>/<name>`."""

    def write(self, type: str, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsLog:
    """Appends to `metrics.jsonl`, after cutting away what lies beyond the step that a run resumes from (`after`).

    If steps up to that one are still to be logged (`pending`), a "train" line of it is one that closed the run; the
    steps' next line stands for it.
    """

    def __init__(
        self,
        path: Path,
        after: int = 0,
        loggers: Sequence[Logger] = (),
        pending: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        lines = read_metrics(path) if after and path.exists() else ()
        kept = [line for line in lines if _stays(line, after, pending)]
        make_folder(path.parent)
        write_file(path, "".join(_line(line) for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")
        self._loggers, self._callbacks = loggers, callbacks

    def write(self, type: str, step: int, **values: Any) -> dict[str, Any]:
        line = {"type": type, "step": step, **values}
        self._file.write(_line(line))
        self._file.flush()
        if type in ("train", "eval", "final"):
            numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
            for logger in self._loggers:
                logger.write(type, step, numbers)
        for callback in self._callbacks:
            callback(dict(line))
        return line

    def sync(self) -> None:
        """Wait until the lines are on the disk; a checkpoint is not saved before them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        for logger in self._loggers:
            logger.close()


def _stays(line: dict[str, Any], after: int, pending: bool) -> bool:
    step, type = line.get("step", 0), line.get("type")
    return step <= after and type != "final" and not (pending and type == "train" and step == after)


def _line(line: dict[str, Any]) -> str:
    return json.dumps(to_json(line), allow_nan=False) + "\n"
