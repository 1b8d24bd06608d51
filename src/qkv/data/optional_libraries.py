"""Imports of optional libraries, each installed by an extra of qkv."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional_library(extra: str, purpose: str, *modules: str) -> ModuleType:
    """The first of these modules that is installed. Raises ValueError that says what for, and names the extra with it."""
    for module in modules:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError:
            continue
    raise ValueError(f"{purpose} needs {modules[-1]}, which is not installed: pip install 'qkv[{extra}]'")
