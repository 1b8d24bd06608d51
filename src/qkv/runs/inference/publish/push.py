"""Upload a run to a repository of the Hub in one commit, through `huggingface_hub`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, TypedDict

from ....core import several
from ....core.atomic import scratch_folder
from ....core.optional_libraries import optional_library
from ....core.spec import brief, counted
from ....io.directories import hub_load
from ....io.directories.layout import CARD, CONFIG, MAX_SHARD_SIZE, MODEL, is_stamped
from ....io.directories.locate import is_hub
from ....io.directories.run_config import read_config
from ....io.hub import huggingface
from ....io.hub.huggingface import HubName
from ..loaded import LoadedModel
from . import directory
from .model_card import model_card

MAIN = "main"


@dataclass(frozen=True)
class Pushed:
    """What was uploaded, or, of a dry run, what would be.

    repository: `owner/name`. revision: the branch.
    files:      the files of the commit with their sizes in bytes.
    removed:    files of an earlier model in the repository that the commit deletes; unknown in a dry run.
    kept_card:  whether the repository has a README.md that somebody else wrote, which stays.
    commit:     the commit's id; None of a dry run.
    url:        the page of the commit; None of a dry run.
    """

    repository: str
    revision: str
    files: dict[str, int]
    removed: tuple[str, ...] = ()
    kept_card: bool = False
    commit: str | None = None
    url: str | None = None


class PushOptions(TypedDict, total=False):
    """The options of `push`."""

    private: bool
    revision: str | None
    message: str | None
    license: str | None
    languages: Sequence[str]
    max_shard_size: int | str
    dry_run: bool


def push(
    run: LoadedModel,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    license: str | None = None,
    languages: Sequence[str] = (),
    max_shard_size: int | str = MAX_SHARD_SIZE,
    dry_run: bool = False,
) -> Pushed:
    """Upload a run in the Hub's format with a model card, in one commit. It is written and checked first.

    private:   make a new repository private; one that exists stays as it is, and a public one is refused.
    revision:  the branch, which is created if it isn't there; main by default.
    message:   of the commit.
    license, languages: for the card, see `model_card`.
    max_shard_size: of a file of weights, in bytes, or as "5GB".
    dry_run:   write and check, and ask nothing of the Hub.

    The commit replaces the files of a model that the repository holds. A README.md there that qkv did not write, or that
    somebody edited, stays. The token is that of `hf auth login` or `HF_TOKEN`. If the upload is killed, the repository
    keeps what it had. Raises ValueError in one sentence for a name that can't be one of the Hub's, a missing or
    powerless token, and whatever else the Hub refuses.
    """
    library = optional_library("pushing to the Hub", "huggingface_hub")
    name = _checked(repository, revision, library)
    if not dry_run:
        _check_token(name, library)
    card = partial(
        model_card, run, name=name.repository, license=license, languages=tuple(several.texts(languages, "languages"))
    )
    with scratch_folder(_place(run, name)) as folder:
        directory.write(run, folder, "hub", card, max_shard_size=max_shard_size)
        _check(folder)
        files = {str(path.relative_to(folder).as_posix()): path.stat().st_size for path in _files(folder)}
        if dry_run:
            return Pushed(name.repository, name.revision or MAIN, files)
        try:
            return _upload(library, name, folder, files, private, message)
        except PushRefused:
            raise
        except (OSError, ValueError, RuntimeError, huggingface.http_error()) as error:
            raise PushRefused(f"the push to {name} failed: {huggingface.why(error, name, library)}") from None


class PushRefused(ValueError):
    """A sentence on why nothing was uploaded."""


def _checked(repository: str, revision: str | None, library: ModuleType) -> HubName:
    """The repository and branch. Raises ValueError for names that the Hub can't have."""
    name = huggingface.named(repository, revision) if isinstance(repository, str) else None
    if name is None:
        raise ValueError(
            f"a repository of the Hub is named owner/name, in letters, digits, '-', '_' and '.', not {brief(repository)}"
        )
    try:
        import_module("huggingface_hub.utils").validate_repo_id(name.repository)
    except ValueError as error:
        raise ValueError(
            f"{brief(name.repository)} can't be a name on the Hub: {str(error).split(chr(10))[0]}"
        ) from None
    if name.revision is not None and (not name.revision.strip("/") or set(name.revision) & set(" ~^:?*[\\\n\t")):
        raise ValueError(f"{brief(name.revision)} can't be the name of a branch; name one such as {MAIN}")
    return name


def _check_token(name: HubName, library: ModuleType) -> None:
    """Raise ValueError if there is no token, or one that may not write, before anything long begins."""
    if library.get_token() is None:
        raise PushRefused(
            "there is no token of the Hub on this machine; `hf auth login` asks for one and keeps it, and HF_TOKEN gives "
            "one for a single command"
        )
    try:
        said = library.HfApi().whoami()
    except (OSError, ValueError, huggingface.http_error()) as error:
        raise PushRefused(f"nothing was sent: {huggingface.why(error, name, library)}") from None
    if ((said.get("auth") or {}).get("accessToken") or {}).get("role") == "read":
        raise PushRefused(
            "the token on this machine may only read; make one that may write at https://huggingface.co/settings/tokens, "
            "and give it by `hf auth login`"
        )


def _place(run: LoadedModel, name: HubName) -> Path:
    """What the temporary folder stands beside: the run, or a name in the system's folder for temporary files."""
    if run.path is not None and os.access(run.path.absolute().parent, os.W_OK):
        return run.path
    return Path(tempfile.gettempdir()) / name.repository.replace("/", "-")


def _check(folder: Path) -> None:
    """Raise ValueError if what was written can't be read back."""
    if is_hub(folder):
        hub_load.check(folder)
    else:
        read_config(folder / CONFIG)


def _files(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _upload(
    library: ModuleType, name: HubName, folder: Path, files: dict[str, int], private: bool, message: str | None
) -> Pushed:
    """Create the repository and the branch if they aren't there, and make one commit."""
    api, branch = library.HfApi(), name.revision or MAIN
    api.create_repo(name.repository, private=private or None, exist_ok=True)
    if branch != MAIN:
        api.create_branch(name.repository, branch=branch, exist_ok=True)
    there = api.model_info(name.repository, revision=branch)
    if private and there.private is False:
        raise PushRefused(
            f"{name.repository} exists and is public, and --private is for new repositories; make it private on its page "
            "first, or choose another name"
        )
    before = {file.rfilename for file in there.siblings or ()}
    kept_card = CARD in before and not _is_ours(library, name, there.sha)
    sent = {file: size for file, size in files.items() if not (kept_card and file == CARD)}
    removed = tuple(sorted(file for file in before - set(files) if file != CARD and MODEL.allows(PurePath(file))))
    operations: list[Any] = [
        *(library.CommitOperationAdd(path_in_repo=file, path_or_fileobj=str(folder / file)) for file in sent),
        *(library.CommitOperationDelete(path_in_repo=file) for file in removed),
    ]
    done = api.create_commit(
        name.repository,
        operations,
        commit_message=message or f"Upload {counted(len(sent), 'file')} of a model by qkv",
        revision=branch,
        parent_commit=there.sha,
    )
    return Pushed(name.repository, branch, sent, removed, kept_card, done.oid, done.commit_url)


def _is_ours(library: ModuleType, name: HubName, commit: str) -> bool:
    """Whether the README.md in a repository is a card as qkv wrote it."""
    return is_stamped(Path(library.hf_hub_download(name.repository, CARD, revision=commit)))
