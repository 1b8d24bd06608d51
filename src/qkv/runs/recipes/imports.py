"""Import code from outside qkv: the modules under `imports` in a recipe or a run, and modules of `qkv --import`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ...core.registry import ADDED_PATHS
from ...core.spec import brief

Consent = Callable[[Sequence[str], str], None]

consent: Consent | None = None
"""Called with the modules and the name of their recipe or run before they are imported; raises ValueError if the user
refuses. None imports without asking, which is how Python works; the command line sets it."""

from_command_line: tuple[str, ...] = ()
"""The modules of `qkv --import`. Every recipe that the command loads gets them under its `imports`."""

imported: list[str] = []
"""The modules that this process has imported for a recipe, a run or `--import`."""


def imports_of(tree: object, absolute: bool = True) -> tuple[str, ...]:
    """The modules under `imports` in a recipe's tree, files by absolute path. Raises ValueError for anything but names."""
    names = tree.get("imports") if isinstance(tree, dict) else None
    names = [names] if isinstance(names, str) else names or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"imports is a list of modules, such as [my_package.parts] or [parts.py], not {brief(names)}")
    return tuple(dict.fromkeys(_absolute(name) if absolute else name for name in names))


def missing(names: Iterable[str]) -> tuple[str, ...]:
    """Filter `names` to the modules that this process has not imported, at least not from that file."""
    return tuple(name for name in names if not _is_imported(name))


def _is_imported(name: str) -> bool:
    module = sys.modules.get(_module_name(name))
    return module is not None and (not _is_file(name) or _same_file(getattr(module, "__file__", None), name))


def import_named(names: Iterable[str], where: str) -> None:
    """Import the modules that a recipe or a run names, once the user agrees. Raises ValueError as `import_module` does."""
    names = missing(names)
    for name in names:
        if not name.isprintable():  # in a terminal it could hide the question
            raise ValueError(f"{where} imports {brief(name)}, which is not the name of a module")
    if names and consent is not None:
        consent(names, where)
    for name in names:
        if missing([name]):  # an earlier one may have imported it
            try:
                import_module(name)
            except ValueError as error:
                raise ValueError(f"{error} ({where} imports it)") from error


def import_module(name: str) -> str:
    """Import a module, `my_package.parts`, or a file, `parts.py`. Returns the absolute path of a file, else the name.

    A module is also looked for in the current directory. Raises ValueError, in one sentence, if it can't be imported;
    another file of the same module name is never imported in place of the one given.
    """
    path = _path(name)
    if not _is_file(name) and ("" in name.split(".") or os.sep in name):
        raise ValueError(
            f"{brief(name)} is not a module; give a name such as my_package.parts, or a file such as parts.py"
        )
    if _is_file(name):
        if not path.is_file():
            raise ValueError(f"there is no file {name} to import")
        loaded = sys.modules.get(path.stem)
        other = getattr(loaded, "__file__", "a part of Python") if loaded else next(reversed(files_of(name)), None)
        if not _same_file(other, name):
            raise ValueError(f"{name} can't be imported: the module {path.stem} is {other}; rename the file")
    folder = _folder(name)
    if folder not in sys.path:  # last, so it hides nothing; worker processes inherit it
        sys.path.append(folder)
        ADDED_PATHS.add(folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's, and may be JSON
            importlib.import_module(_module_name(name))
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name} can't be imported: there is no module {error.name} on Python's path or in {Path.cwd()}; "
            "install it, or run qkv in the directory that has it"
        ) from error
    except (Exception, SystemExit) as error:  # whatever the module does wrong
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name} can't be imported: {type(error).__name__}: {text}") from error
    if name not in imported:
        imported.append(name)
    return _absolute(name)


def files_of(name: str) -> list[Path]:
    """The files that importing a module runs, its packages first, found without running any; [] if it is not found.

    What these import in turn is not among them.
    """
    files: list[Path] = []
    search: list[str] | None = None
    parts = _module_name(name).split(".")
    for i in range(len(parts)):
        spec = _find(".".join(parts[: i + 1]), search, _folder(name))
        if spec is None:
            return []
        if spec.origin is not None and Path(spec.origin).is_file():
            files.append(Path(spec.origin))
        search = list(spec.submodule_search_locations or ())
    return files


def _find(module: str, search: list[str] | None, folder: str) -> ModuleSpec | None:
    """The spec that `import` would find in `search`, by default in `sys.path` and then in `folder`."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    specs = (finder.find_spec(module, search, None) for finder in finders)
    spec = next((spec for spec in specs if spec is not None), None)
    return PathFinder.find_spec(module, [folder]) if spec is None and search is None else spec


def _is_file(name: str) -> bool:
    return name.endswith(".py")


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111  (Path.expanduser would raise RuntimeError for an unknown user)


def _absolute(name: str) -> str:
    """A file's absolute path; a module's name as it is."""
    return os.path.normpath(_path(name).absolute()) if _is_file(name) else name


def _module_name(name: str) -> str:
    return Path(name).stem if _is_file(name) else name


def _folder(name: str) -> str:
    """The folder that Python has to search for a file or a module."""
    return str(_path(name).absolute().parent if _is_file(name) else Path.cwd())


def _same_file(file: str | Path | None, name: str) -> bool:
    return file is not None and Path(file).resolve() == _path(name).resolve()
