"""Import the parts of installed packages that register themselves in the entry-point group `qkv.parts`."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import entry_points

GROUP = "qkv.parts"

ADDED_PATHS: set[str] = set()
"""Folders of modules under `imports`, which qkv added to `sys.path`: packages there do not count as installed."""


@cache
def import_installed() -> None:
    """Import every module of the group, once in a process. One that fails gives a warning."""
    for point in entry_points(group=GROUP):
        if point.dist is not None and str(point.dist.locate_file("")) in ADDED_PATHS:
            continue
        try:
            with redirect_stdout(sys.stderr):  # what a package prints must not mix with a command's output
                point.load()
        except Exception as error:  # whatever the package does wrong
            owner = f" of the package {point.dist.name}" if point.dist is not None else ""
            text = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"the parts {point.value}{owner} can't be imported: {text}", stacklevel=2)
