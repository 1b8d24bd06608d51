"""Tasks, one folder each. Importing this package registers all tasks, objectives, pictures of samples and data sources."""

import importlib
import pkgutil

from ...data import memory, memory_series, mixture, readers, synthetic  # noqa: F401  (the first three register sources)

for _package in (readers, synthetic):
    for _module in pkgutil.iter_modules(_package.__path__):
        importlib.import_module(f"{_package.__name__}.{_module.name}")
for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
