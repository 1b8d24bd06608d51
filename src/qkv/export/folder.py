"""The files that programs look for beside an exported model's graphs."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

from ..directories.layout import CONFIG, SETTINGS_OF_MODELS, Contents
from ..inference.run import Run


def write_settings(run: Run, folder: Path) -> bool:
    """Write configuration, tokenizer and settings of generation into an empty folder, without weights: in the Hub's format
    if a family matches the model as it is, else in qkv's own. Returns whether it was the Hub's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.save(folder, with_weights=False)
    return not any("is saved under the model type" in str(warning.message) for warning in caught)


def contents(what: str, *graphs: str) -> Contents:
    """What the directory of an exported model may hold: settings and `graphs`."""
    return Contents(what, (*SETTINGS_OF_MODELS, *graphs), needs=CONFIG)


def need(what: str, extra: str, *modules: str) -> None:
    """Raise ValueError, naming the extra to install, if a library is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"{what} takes {' and '.join(missing)}, which {verb} not installed: pip install 'qkv[{extra}]'"
        )
