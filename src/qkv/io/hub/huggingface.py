"""Names of the Hub as directories on this machine, by `huggingface_hub` with its cache and its offline variables."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import ModuleType

from ...core.spec import brief
from .files import INDEX, PICKLE, PICKLE_INDEX, WEIGHTS

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SETTINGS = ["*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt"]  # everything small that a model may need


def is_id(name: str) -> bool:
    """Whether a name can be one of the Hub's: `owner/name`. The Hub's old names without an owner could be any folder's."""
    return _ID.fullmatch(name) is not None and "--" not in name and ".." not in name


MODULES = ("Pooling", "Dense", "LayerNorm", "Normalize")
"""Modules of sentence-transformers whose files are downloaded."""


def download(name: str, revision: str | None = None, allow_pickle: bool = False) -> Path:
    """The directory of a repository in the cache, downloaded if it isn't there yet. Code in it is never fetched.

    `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` and the like mean what they always do. Raises ValueError in one sentence if
    the repository, the revision or the network isn't there, or `huggingface_hub` isn't installed.
    """
    from ...core.optional_libraries import optional_library  # imported here: most models are on this machine

    library = optional_library(f"there is no directory {brief(name)}, and getting it from the Hub", "huggingface_hub")
    try:
        get = partial(library.snapshot_download, name, revision=revision, ignore_patterns=["*/*"])
        folder = Path(get(allow_patterns=SETTINGS))
        wanted = _weights(library, name, folder, revision, allow_pickle)
        if (folder / "modules.json").is_file():  # of sentence-transformers, whose other modules lie a folder deeper
            files = ("config.json", WEIGHTS, *([PICKLE] if allow_pickle else []))
            get(allow_patterns=[f"*_{kind}/{file}" for kind in MODULES for file in files], ignore_patterns=None)
        return Path(get(allow_patterns=[*SETTINGS, *wanted]))
    except (OSError, ValueError) as error:  # the library's own errors are of these kinds
        at = f" at revision {brief(revision)}" if revision else ""
        raise ValueError(
            f"there is no directory {brief(name)}, and the Hub did not give it{at}: {_why(error)}"
        ) from None


def _why(error: Exception) -> str:
    """The first sentence of what `huggingface_hub` says; a network that isn't there in plain words."""
    message = str(error).strip().split("\n")[0]
    unreachable = ("ConnectError", "ConnectTimeout", "ConnectionError", "Cannot find an appropriate cached snapshot")
    if any(word in message or word in type(error).__name__ for word in unreachable):
        return "it can't be reached from here, and nothing of that name is in its cache"
    return message


def _weights(library: ModuleType, name: str, folder: Path, revision: str | None, allow_pickle: bool) -> list[str]:
    """Which weights to fetch: shards if there is an index, else the one file; pickles only if there is no other."""
    if (folder / INDEX).is_file():
        return ["model-*.safetensors"]
    if (folder / WEIGHTS).is_file() or not allow_pickle:
        return [WEIGHTS]
    if library.file_exists(name, WEIGHTS, revision=revision):
        return [WEIGHTS]
    return ["pytorch_model-*.bin"] if (folder / PICKLE_INDEX).is_file() else [PICKLE]
