"""Tasks, one folder each. Importing this registers them, their objectives and pictures, and the sources that they read."""

import importlib
import pkgutil

from ..data import (
    mixture,  # noqa: F401
    readers,
    synthetic,
)

for _package in (readers, synthetic):
    for _found in pkgutil.iter_modules(_package.__path__):
        importlib.import_module(f"{_package.__name__}.{_found.name}")
for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_found.name)
