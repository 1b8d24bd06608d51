"""The directory of a study: whether it is free, the study that it holds, and how a new one replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ...core import atomic, yamls
from ...io.directories import layout
from ...io.directories.layout import RUN, Contents


def saved_study(out: Path, settings: str, kind: str) -> dict[str, Any] | None:
    """Return the settings of the study in `out`, from its file `settings`, or None if `out` is missing or empty.

    kind: of the study, with its article, such as `an ablation`. Raises ValueError if `out` holds something else.
    """
    if not (out / settings).is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} holds something that is not {kind}; choose another directory with --out")
        return None
    return yamls.load(layout.read_text(out / settings), str(out / settings))


def needs_resume(out: Path, kind: str) -> ValueError:
    """Return the error for a directory that already holds a study."""
    return ValueError(
        f"{out} holds {kind}; continue it with --resume, replace it with --overwrite, or choose another directory with --out"
    )


def check_contents(out: Path, files: Iterable[str], settings: str, kind: str, runs: Iterable[Path]) -> None:
    """Raise ValueError if the directory of a study holds anything but its `settings`, its other `files`, and its `runs`."""
    contents = Contents(kind, (settings, *files), needs=settings)
    atomic.check_replaceable(out, lambda folder: contents.check(folder, dict.fromkeys(map(Path.resolve, runs), RUN)))


@contextmanager
def begun(out: Path, settings: str, content: str, console: Console, overwrite: bool) -> Iterator[None]:
    """Write the settings with which a study begins or continues. If it overwrites one, that one is set aside until
    `drop_old`, and put back if the new one fails before anything else was written."""
    replaces = overwrite and out.is_dir() and any(out.iterdir())
    if replaces:
        with atomic.beginning(out) as new:
            layout.write_text(new / settings, content)
        console.print(
            f"What was in {out} is kept in {atomic.old(out)} until this is finished.", soft_wrap=True, highlight=False
        )
    else:
        atomic.make_folder(out)
        layout.write_text(out / settings, content)
    try:
        yield
    except BaseException:
        if replaces and [path.name for path in out.iterdir()] == [settings]:
            atomic.put_back(out)
        raise
