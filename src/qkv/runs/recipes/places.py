"""Make the paths in a recipe absolute.

In a recipe file, paths are relative to that file; in settings, to the current directory. The recipe of a run has absolute
paths, so the run can be used from anywhere.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Protocol

from ...core.spec import brief
from ...data.source import Source


class Resolve(Protocol):
    """Returns the absolute path of a name. If `is_path` is false, the name may also be on the Hub: it is returned unchanged
    unless there is such a file or folder."""

    def __call__(self, name: str, is_path: bool = ...) -> str: ...


def beside(tree: dict[str, Any], file: Path) -> dict[str, Any]:
    """Make the paths of a recipe read from `file` absolute. A path that exists only in the current directory is taken from
    there, with a warning."""

    def resolve(name: str, is_path: bool = True) -> str:
        path = _expanded(name)
        if path.is_absolute():
            return name
        absolute = file.absolute().parent / path
        if not _exists(absolute) and _exists(path):
            warnings.warn(
                f"{brief(name)} of {file} is not beside that recipe; using the one in the current directory",
                stacklevel=2,
            )
            absolute = path.absolute()
        return os.path.normpath(absolute) if is_path or _exists(absolute) else name

    return _resolved(tree, resolve)


def here(tree: dict[str, Any]) -> dict[str, Any]:
    """Make the paths of a recipe absolute that exist in the current directory."""

    def resolve(name: str, is_path: bool = False) -> str:
        path = _expanded(name)
        return os.path.normpath(path.absolute()) if not path.is_absolute() and _exists(path) else name

    return _resolved(tree, resolve)


def _expanded(name: str) -> Path:
    """The path with `~` expanded. Raises ValueError if `~user` names an unknown user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        user = Path(name).parts[0]
        raise ValueError(
            f"{brief(name)} names the home of {brief(user[1:])}, who is not a user of this machine; give the full "
            f"path, or ./{name} for a folder named {user}"
        ) from None


def _exists(path: Path) -> bool:
    """Whether the path exists, or points into an archive that exists."""
    return path.exists() or any(parent.is_file() for parent in path.parents)


def _resolved(tree: dict[str, Any], resolve: Resolve) -> dict[str, Any]:
    data, result = tree.get("data"), dict(tree)
    if isinstance(data, dict):
        result["data"] = _of_source(data, resolve)
    if isinstance(names := tree.get("imports"), list):
        result["imports"] = [
            resolve(name) if isinstance(name, str) and name.endswith(".py") else name for name in names
        ]
    for name, key in (("vectors", "path"), ("tokenizer", "path"), ("model", "directory")):
        node = tree.get(name)
        if isinstance(node, dict) and isinstance(node.get(key), str):
            result[name] = {**node, key: resolve(node[key], is_path=name == "vectors")}
    return result


def _of_source(data: dict[str, Any], resolve: Resolve) -> dict[str, Any]:
    """The settings of a source with its paths resolved, and of the sources in it."""
    kind = Source.kinds.get(str(data.get("kind")))
    is_path, fields = not getattr(kind, "on_hub", False), getattr(kind, "path_fields", ())
    result = {key: _value(value, resolve, is_path) if key in fields else value for key, value in data.items()}
    if isinstance(parts := data.get("parts"), list):
        result["parts"] = [_of_part(part, resolve) for part in parts]
    return result


def _of_part(part: Any, resolve: Resolve) -> Any:
    inner = part.get("source") if isinstance(part, dict) else None
    return {**part, "source": _of_source(inner, resolve)} if isinstance(inner, dict) else part


def _value(value: Any, resolve: Resolve, is_path: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_value(name, resolve, is_path) for name in value]
    return resolve(value, is_path) if isinstance(value, str) and value else value
