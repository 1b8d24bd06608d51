"""Resolve the paths in a recipe: relative to the recipe's file or, on the command line, to the current directory. The recipe
of a run has absolute paths, so that the run can be used from anywhere."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Protocol

from ..data.readers.hub_datasets import Datasets
from ..data.source import Source


class Place(Protocol):
    """Where a name is; one that is not `sure` to be of a file, but may be on the Hub, stays as it is where there is none."""

    def __call__(self, name: str, sure: bool = ...) -> str: ...


def beside(tree: dict[str, Any], file: Path) -> dict[str, Any]:
    """A recipe's tree, read from a file, with its paths absolute. What is not beside the file, but is in the current
    directory, is taken from there, with a warning."""

    def place(name: str, sure: bool = True) -> str:
        path = Path(name).expanduser()
        if path.is_absolute():
            return name
        found = file.absolute().parent / path
        if not _there(found) and _there(path):
            warnings.warn(
                f"{name!r} of {file} is not beside that recipe; the current directory's is taken", stacklevel=2
            )
            found = path.absolute()
        return os.path.normpath(found) if sure or _there(found) else name

    return _placed(tree, place)


def here(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe's tree with those of its paths absolute that are in the current directory."""

    def place(name: str, sure: bool = False) -> str:
        path = Path(name).expanduser()
        return os.path.normpath(path.absolute()) if not path.is_absolute() and _there(path) else name

    return _placed(tree, place)


def _there(path: Path) -> bool:
    """Whether it is a file or folder, or lies in an archive that is one."""
    return path.exists() or any(parent.is_file() for parent in path.parents)


def _placed(tree: dict[str, Any], place: Place) -> dict[str, Any]:
    data, made = tree.get("data"), dict(tree)
    if isinstance(data, dict):
        made["data"] = _of_source(data, place)
    if isinstance(names := tree.get("imports"), list):
        made["imports"] = [place(name) if isinstance(name, str) and name.endswith(".py") else name for name in names]
    for name, key in (("vectors", "path"), ("tokenizer", "path"), ("model", "directory")):
        node = tree.get(name)
        if isinstance(node, dict) and isinstance(node.get(key), str):
            made[name] = {**node, key: place(node[key], sure=name == "vectors")}
    return made


def _of_source(data: dict[str, Any], place: Place) -> dict[str, Any]:
    """The settings of a source with its paths placed, and of the sources in it."""
    kind = Source.kinds.get(str(data.get("kind")))
    sure = kind is not Datasets
    named = getattr(kind, "path_fields", ())
    made = {key: _value(value, place, sure) if key in named else value for key, value in data.items()}
    if isinstance(parts := data.get("parts"), list):
        made["parts"] = [_of_part(part, place) for part in parts]
    return made


def _of_part(part: Any, place: Place) -> Any:
    inner = part.get("source") if isinstance(part, dict) else None
    return {**part, "source": _of_source(inner, place)} if isinstance(inner, dict) else part


def _value(value: Any, place: Place, sure: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_value(name, place, sure) for name in value]
    return place(value, sure) if isinstance(value, str) and value else value
