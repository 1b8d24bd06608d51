"""The directory of a study: whether it is free, the study that it holds, and how a new one replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ...core import atomic, yamls
from ...io.directories import layout
from ...io.directories.layout import RUN, Contents, RunState
from ...io.directories.lock import LOCK, OWNER, locked
from ..recipes.recipe import Recipe
from ..train.fingerprint import fingerprint

DATA = "data.json"
"""The file of a study with the checksums of its data, by `data_of`."""


def data_of(recipes: Mapping[str, Recipe]) -> dict[str, str]:
    """The checksum of each recipe's data, by its name. Recipes with the same data are read once."""
    sums: dict[str, str] = {}
    for recipe in recipes.values():
        key = recipe.data.to_json()
        if key not in sums:
            sums[key] = fingerprint(recipe.data, None, recipe.seed)["data"]
    return {name: sums[recipe.data.to_json()] for name, recipe in recipes.items()}


def check_same_data(out: Path, data: Mapping[str, str]) -> None:
    """Raise ValueError if a study that is resumed has trained runs on other contents of its data, by their checksums."""
    if not (out / DATA).is_file() or not _has_runs(out):
        return
    before = layout.read_json(out / DATA)["checksums"]
    changed = [name for name in data if before.get(name, data[name]) != data[name]]
    if changed:
        raise ValueError(
            f"the data of {changed[0] or 'the recipe'} have changed since runs in {out} were trained, and runs on "
            "different data are not comparable; restore the data, replace the study with --overwrite, or choose another "
            "directory with --out"
        )


def _has_runs(out: Path) -> bool:
    folders = (path.parent for pattern in ("*", "*/*") for path in out.glob(f"{pattern}/{layout.RECIPE}"))
    return any(RunState.of(folder) is not RunState.FREE for folder in folders)


def saved_study(out: Path, settings: str, kind: str) -> dict[str, Any] | None:
    """Return the settings of the study in `out`, from its file `settings`, or None if `out` is missing or empty.

    kind: of the study, with its article, such as `an ablation`. Raises ValueError if `out` holds something else.
    """
    if not (out / settings).is_file():
        if out.exists() and (not out.is_dir() or any(path.name not in (LOCK, OWNER) for path in out.iterdir())):
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
    contents = Contents(kind, (settings, DATA, *files), needs=settings)
    atomic.check_replaceable(out, lambda folder: contents.check(folder, dict.fromkeys(map(Path.resolve, runs), RUN)))


@contextmanager
def begun(
    out: Path, settings: str, content: str, console: Console, overwrite: bool, data: Mapping[str, str]
) -> Iterator[None]:
    """Lock the directory of a study, and write the settings with which it begins or continues and the checksums of its
    `data`. If it overwrites one, that one is set aside until `drop_old`, and put back if the new one fails before anything
    else was written.

    Raises ValueError if another process works there, or if it continues a study whose data have changed.
    """
    replaces = overwrite and out.is_dir() and any(out.iterdir())
    with locked(out) as also_lock:
        if replaces:
            with atomic.beginning(out) as new:
                layout.write_text(new / settings, content)
                layout.write_json(new / DATA, {"checksums": data})
                also_lock(new)
            console.print(
                f"What was in {out} is kept in {atomic.old(out)} until this is finished.",
                soft_wrap=True,
                highlight=False,
            )
        else:
            check_same_data(out, data)
            layout.write_text(out / settings, content)
            layout.write_json(out / DATA, {"checksums": data})
        try:
            yield
        except BaseException:
            if replaces and {path.name for path in out.iterdir()} <= {settings, DATA, LOCK, OWNER}:
                atomic.put_back(out)
            raise
