"""Import parts from outside qkv: the modules that a recipe names under `imports`, and those of `qkv --import`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Consent = Callable[[Sequence[str], str], None]

consent: Consent | None = None
"""Called before the modules that a recipe or a run names are imported, with its file's name; raises ValueError where the
user refuses. None asks nobody. The command line sets it."""

given: tuple[str, ...] = ()
"""The modules of `qkv --import`, which every recipe that is loaded names from then on."""


def imports_of(tree: Any, absolute: bool = True) -> tuple[str, ...]:
    """The modules that a recipe's tree names, files by absolute path. Raises ValueError where it is no list of names."""
    names = tree.get("imports") if isinstance(tree, dict) else None
    names = [names] if isinstance(names, str) else names or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"imports is a list of modules, such as [my_package.parts] or [parts.py], not {names!r}")
    return tuple(dict.fromkeys(_absolute(name) if absolute else name for name in names))


def missing(names: Iterable[str]) -> tuple[str, ...]:
    """Those of some modules that this process has not imported."""
    return tuple(name for name in names if _module_name(name) not in sys.modules)


def import_named(names: Iterable[str], where: str) -> None:
    """Import the modules that a recipe or a run names, once the user agrees. Raises ValueError as `import_module` does."""
    names = missing(names)
    if names and consent is not None:
        consent(names, where)
    for name in names:
        if missing([name]):  # an earlier one may have imported it
            import_module(name)


def import_module(name: str) -> str:
    """Import a module, `my_package.parts`, or a file, `parts.py`; a file's absolute path is given back, else the name.

    A module is also looked for in the current directory. Raises ValueError, in one sentence, where it can't be imported.
    """
    path = Path(name).expanduser()
    is_file = name.endswith(".py")
    if is_file and not path.is_file():
        raise ValueError(f"there is no file {name} to import")
    _add_to_path(str(path.absolute().parent) if is_file else str(Path.cwd()))
    try:
        module = importlib.import_module(_module_name(name))
    except Exception as error:  # whatever the module does wrong
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name} can't be imported: {type(error).__name__}: {text}") from error
    if is_file and Path(str(module.__file__)).resolve() != path.resolve():
        raise ValueError(f"{name} can't be imported: the module {path.stem} is {module.__file__}; rename the file")
    return _absolute(name)


def _absolute(name: str) -> str:
    """A file's absolute path; a module's name as it is."""
    return os.path.normpath(Path(name).expanduser().absolute()) if name.endswith(".py") else name


def _module_name(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _add_to_path(folder: str) -> None:
    """Last, so that it hides nothing; worker processes inherit it."""
    if folder not in sys.path:
        sys.path.append(folder)
