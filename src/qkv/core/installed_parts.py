"""Import the parts of installed packages that register themselves in the entry-point group `qkv.parts`."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points

GROUP = "qkv.parts"


@cache
def import_installed() -> None:
    """Import every module of the group, once in a process. For one that fails there is a warning."""
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # whatever a package of others does wrong
            owner = f" of the package {point.dist.name}" if point.dist is not None else ""
            text = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"the parts {point.value}{owner} can't be imported: {text}", stacklevel=2)
