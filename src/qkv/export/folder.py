"""Write an exported model's directory as a whole: beside its place, then renamed; with the files that programs look for."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ..core import atomic
from ..inference.run import Run


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `target` at the end of the block, or is deleted if the block fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".tmp-{target.name}-{os.getpid()}-{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        yield beside
        for path in beside.rglob("*"):
            if path.is_file():
                atomic.sync_file(path)
        atomic.replace_folder(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def write_settings(run: Run, folder: Path) -> bool:
    """Write configuration, tokenizer and settings of generation without weights: in the Hub's format where a family matches
    the model as it is, else in qkv's own. Returns whether it was the Hub's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.save(folder, with_weights=False)
    return not any("is saved under the model type" in str(warning.message) for warning in caught)


def need(what: str, extra: str, *modules: str) -> None:
    """Raise ValueError, naming the extra to install, if a library is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ValueError(
            f"{what} takes {' and '.join(missing)}, which {verb} not installed: pip install 'qkv[{extra}]'"
        )
