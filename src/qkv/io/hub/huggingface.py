"""Names of the Hub as directories on this machine, by `huggingface_hub` with its cache and its offline variables."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ...core.json_files import read_json
from ...core.spec import brief
from .files import INDEX, PICKLE, PICKLE_INDEX, WEIGHTS

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SETTINGS = ["*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt"]  # everything small that a model may need
MODULES = ("Pooling", "Dense", "LayerNorm", "Normalize")
"""The sentence-transformers modules whose files are downloaded."""


class HubName(NamedTuple):
    """A repository of the Hub, `owner/name`, and one of its branches, tags or commits; None for the main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repository + (f"@{self.revision}" if self.revision else "")


def is_id(name: str) -> bool:
    """Whether a name can be one of the Hub's: `owner/name`. The Hub's old names without an owner could be any folder's."""
    return _ID.fullmatch(name) is not None and "--" not in name and ".." not in name


def named(name: str, revision: str | None = None) -> HubName | None:
    """The repository and revision of `owner/name` or `owner/name@revision`; None for what can't be on the Hub.

    Raises ValueError if the name and `revision` name two revisions.
    """
    repository, at, own = name.partition("@")
    if not is_id(repository) or (at and not own):
        return None
    if own and revision not in (None, own):
        raise ValueError(f"{brief(name)} names the revision {brief(own)}, and {brief(revision)} is given beside it")
    return HubName(repository, own or revision)


def in_cache(name: HubName) -> bool:
    """Return whether the local Hub cache holds any file of a repository."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    return (cache / f"models--{name.repository.replace('/', '--')}").is_dir()


def cached_as(folder: Path) -> str | None:
    """The repository, `owner/name`, whose files a folder of the Hub's cache holds; None for another folder."""
    prefix, _, rest = folder.parent.parent.name.partition("--")
    name = rest.replace("--", "/", 1)
    return name if folder.parent.name == "snapshots" and prefix == "models" and is_id(name) else None


def download(name: HubName, allow_pickle: bool = False) -> Path:
    """The directory of a repository in the cache, downloaded if it isn't there yet. Code in it is never fetched.

    `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` and the like mean what they always do. If the Hub can't be reached, what the
    cache holds is used, and a warning says of which commit. Raises ValueError in one sentence if the repository, the
    revision or the network isn't there, or `huggingface_hub` isn't installed.
    """
    from ...core.optional_libraries import optional_library  # imported here: most models are on this machine

    library = optional_library(
        f"there is no directory {brief(str(name))}, and getting it from the Hub", "huggingface_hub"
    )
    try:
        found = library.HfApi().model_info(name.repository, revision=name.revision)
    except (OSError, ValueError, http_error()) as error:
        if not unreachable(error):
            raise _not_given(name, error, library) from None
        return _from_cache(library, name, error)
    wanted = _wanted([file.rfilename for file in found.siblings or ()], name, allow_pickle)
    try:
        return Path(library.snapshot_download(name.repository, revision=name.revision, allow_patterns=wanted))
    except (OSError, ValueError, http_error()) as error:
        raise _not_given(name, error, library) from None


def http_error() -> type[Exception]:
    """The class of errors of the network, of which `huggingface_hub` lets some through."""
    error: type[Exception] = import_module("huggingface_hub.errors").HfHubHTTPError.__mro__[1]
    return error


def _wanted(files: Iterable[str], name: HubName, allow_pickle: bool) -> list[str]:
    """Which files of a repository to fetch: settings, tokenizer and weights, of which pickles only if there are no others.

    Raises ValueError if there are no weights, or only pickles and these are not allowed.
    """
    there = set(files)
    at_top = [file for file in there if "/" not in file]
    settings = [file for file in at_top if any(fnmatchcase(file, pattern) for pattern in SETTINGS)]
    shards = "model-*.safetensors" if INDEX in there else WEIGHTS
    weights = [file for file in at_top if fnmatchcase(file, shards)]
    pickles = "pytorch_model-*.bin" if PICKLE_INDEX in there else PICKLE
    pickled = [file for file in at_top if fnmatchcase(file, pickles)]
    if not weights and pickled and not allow_pickle:
        raise ValueError(
            f"{name} on the Hub has its weights as a pickle ({pickled[0]}), which could run code; allow_pickle=True "
            "(--allow-pickle) reads the tensors in it and nothing else"
        )
    if not weights and not pickled:
        raise ValueError(
            f"{name} on the Hub has no {WEIGHTS}, so there is nothing to load; name a repository of a model"
        )
    inside = ("config.json", WEIGHTS, *([PICKLE] if allow_pickle else []))
    modules = [f"*_{kind}/{file}" for kind in MODULES for file in inside] if "modules.json" in there else []
    nested = [file for file in there if any(fnmatchcase(file, pattern) for pattern in modules)]
    return sorted([*settings, *(weights or pickled), *nested])


def _from_cache(library: ModuleType, name: HubName, reason: Exception) -> Path:
    """What the cache holds of a repository, with a warning; ValueError if that is nothing, or not a whole model."""
    config = library.try_to_load_from_cache(name.repository, "config.json", revision=name.revision)
    offline = type(reason).__name__ == "OfflineModeIsEnabled"
    why = "HF_HUB_OFFLINE keeps the Hub from being asked" if offline else "the Hub can't be reached from here"
    if not isinstance(config, str):
        has = "has other revisions of it only" if name.revision and in_cache(name) else "has no model of that name"
        raise ValueError(f"there is no directory {brief(str(name))}, {why}, and its cache {has}")
    folder = Path(config).parent
    if missing := _missing(folder):
        raise ValueError(
            f"{why}, and its cache holds only a part of {name}, without {missing}; load it once with a connection"
        )
    warnings.warn(
        f"{why}, so {name} is what its cache holds, commit {folder.name[:10]}; newer commits are not seen", stacklevel=2
    )
    return folder


def _missing(folder: Path) -> str | None:
    """A file of weights that a repository's folder in the cache lacks."""
    if (folder / INDEX).is_file():
        shards = set(read_json(folder / INDEX).get("weight_map", {}).values())
        return next((shard for shard in sorted(shards) if not (folder / shard).is_file()), None)
    return None if (folder / WEIGHTS).is_file() or any(folder.glob("pytorch_model*.bin")) else WEIGHTS


def unreachable(error: BaseException) -> bool:
    """Whether an error says that the Hub could not be asked, rather than what it answered."""
    kinds = (
        "ConnectError",
        "ConnectTimeout",
        "ReadTimeout",
        "ConnectionError",
        "OfflineModeIsEnabled",
        "ReadError",
        "LocalEntryNotFoundError",
    )
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    return bool(names & {*kinds, "TimeoutException", "NetworkError", "RemoteProtocolError"}) or status in (
        502,
        503,
        504,
    )


def _not_given(name: HubName, error: Exception, library: ModuleType) -> ValueError:
    return ValueError(
        f"there is no directory {brief(str(name))}, and the Hub did not give it: {why(error, name, library)}"
    )


def why(error: Exception, name: HubName, library: ModuleType) -> str:
    """What the Hub said, in one clause with what to do."""
    if type(error) is RuntimeError and isinstance(error.__cause__, Exception):  # around the error of an upload
        error = error.__cause__
    kinds, status = (
        import_module("huggingface_hub.errors"),
        getattr(getattr(error, "response", None), "status_code", None),
    )
    login = "`hf auth login` or HF_TOKEN"
    if isinstance(error, kinds.GatedRepoError):
        return (
            f"{name.repository} is gated: ask for access on its page, and give a token that has it to this machine "
            f"({login})"
        )
    if isinstance(error, kinds.RevisionNotFoundError):
        return f"{name.repository} has no branch, tag or commit {brief(name.revision)}"
    if isinstance(error, kinds.RepositoryNotFoundError):
        has = "the token on this machine may not see it" if library.get_token() else f"it needs a token ({login})"
        return f"there is no repository {name.repository}, or it is private and {has}"
    if status == 401:
        return f"the token on this machine is not valid; give another one by {login}"
    if status == 403:
        return f"the token on this machine has no right to that in {name.repository}; give another one by {login}"
    if status == 412:
        return f"somebody else changed {name.repository} meanwhile; look at it, and try again"
    if unreachable(error):
        return "it can't be reached from here"
    if said := getattr(error, "server_message", None):
        return f"it answered {status}, {brief(str(said).strip().split(chr(10))[0])}"
    return str(error).strip().split("\n")[0] or type(error).__name__
