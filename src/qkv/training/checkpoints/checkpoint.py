"""Save and load checkpoints: folders of safetensors files and a JSON file, written atomically, checked by SHA-256 when read.

    checkpoints/
      step-00001000/
        model.safetensors        weights, tied ones once
        optimizer.safetensors    the optimizer's tensors, as `<parameter>/<state>`; where ranks have different parts,
                                 `optimizer-00001-of-00004.safetensors` and so on, each written by one of them
        average.safetensors      the running average of the weights, where training keeps one
        state.json               {"sha256": of the rest, "state": {...}, "best": a checkpoint's name or null,
                                  "temporary": true or false, "files": {name: {"sha256", "bytes"}}}
      last, best                 the names of the newest checkpoint and of the one with the best evaluation, for people
      damaged-step-00001500/     one that could not be read when the run was resumed

A folder with such a name is always complete: it is written under a temporary name and renamed, and only that rename
changes what is saved. The files `last` and `best` are written afterwards. If the process is killed they may be one save
behind, so they are never read: the newest checkpoint names the best one. `go_on_from` completes an interrupted save.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ...core import atomic
from ...core.ranks import ALONE, Ranks
from .background import Writing
from .pieces import CheckpointShard, shards_of, to_metadata
from .slices import Saved, saved_in
from .weights import Tensors, write_tensors

MODEL, OPTIMIZER, AVERAGE, STATE = "model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{8,})")


class Damaged(ValueError):
    """A checkpoint does not hold what was saved."""


class _Pending(NamedTuple):
    """A save whose files are being written."""

    target: Path
    beside: Path
    writing: Writing
    state: dict[str, Any]
    best: bool
    temporary: bool


class Checkpoints:
    """The checkpoints of one training. The last `keep` and the best are kept. Opening cleans up after killed saves.

    A `temporary` checkpoint, saved because of an interruption, lasts until the next save and replaces no other: a resumed
    training keeps the same checkpoints as an uninterrupted one.

    With several `ranks`, all of which see the same disk, each writes its own files; the rest is done by rank 0.
    """

    def __init__(self, root: Path, keep: int = 3, ranks: Ranks = ALONE) -> None:
        self.root, self.keep, self.ranks = root, keep, ranks
        self.temporary: Path | None = None
        self._pending: _Pending | None = None
        if root.is_dir() and ranks.rank == 0:
            atomic.tidy(root)

    # -- listing -----------------------------------------------------------------------------------------------

    def all(self) -> list[Path]:
        """Every checkpoint, the oldest first."""
        if not self.root.is_dir():
            return []
        found = [path for path in self.root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        return sorted(found, key=step_of)

    def newest(self) -> Path | None:
        return next(reversed(self.all()), None)

    def best(self) -> Path | None:
        """The checkpoint with the best evaluation, as the newest intact one names it; None if it is gone."""
        for path in reversed(self.all()):
            try:
                name = _best_of(path)
            except Damaged:
                continue
            return self.root / name if name and _NAME.fullmatch(name) and (self.root / name).is_dir() else None
        return None

    def set_aside(self, damaged: Path) -> Path:
        """Rename a damaged checkpoint, so it is ignored but its files can still be inspected."""
        aside = self.root / f"damaged-{damaged.name}"
        if aside.exists():
            atomic.remove_folder(aside)
        atomic.rename_folder(damaged, aside)
        return aside

    # -- saving -------------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        files: Mapping[str, Tensors | CheckpointShard],
        state: Mapping[str, Any],
        best: bool = False,
        temporary: bool = False,
    ) -> Path:
        """Save a checkpoint and delete the oldest. `best`: its evaluation is the best so far.

        All ranks call it, each with the files that it writes; state, best and temporary are rank 0's.
        Raises OSError, on every rank, if one can't write; earlier checkpoints are then unchanged.
        """
        self.begin(step, files, state, best, temporary, background=False)
        self.finish()
        return self.root / f"step-{step:08d}"

    def begin(
        self,
        step: int,
        files: Mapping[str, Tensors | CheckpointShard],
        state: Mapping[str, Any],
        best: bool = False,
        temporary: bool = False,
        background: bool = True,
    ) -> None:
        """`save`, but the files are written in the background, from copies, and the checkpoint is there after `finish`.

        An unfinished save is finished first.
        """
        self.finish()
        target = self.root / f"step-{step:08d}"
        beside = self.root / f".tmp-{target.name}"
        error = self._on_rank_0(lambda: _begin(beside))
        if error is not None:
            raise self._failed(beside, target, error) from error
        writing = Writing(_write_files, beside, files, background)
        self._pending = _Pending(target, beside, writing, copy.deepcopy(dict(state)), best, temporary)

    @property
    def writing(self) -> bool:
        """Whether files of an unfinished save are still being written, by this rank."""
        return self._pending is not None and not self._pending.writing.done

    def finish(self) -> None:
        """Wait until the files of an unfinished save are written, and make it a checkpoint. All ranks call it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        gathered = self.ranks.gather(pending.writing.result())
        error = next((raised for _, raised in gathered if raised is not None), None)
        if error is None:
            every = {name: known for sums, _ in gathered for name, known in sums.items()}
            error = self._on_rank_0(lambda: self._complete(pending, every))
        if error is not None:
            raise self._failed(pending.beside, pending.target, error) from error

    def abandon(self) -> None:
        """Let an unfinished save go, with the files written so far."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.writing.result()
            atomic.remove(pending.beside)

    def _on_rank_0(self, act: Callable[[], None]) -> OSError | None:
        """Act on rank 0. Returns the error, on every rank."""
        error: OSError | None = None
        if self.ranks.rank == 0:
            try:
                act()
            except OSError as raised:
                error = raised
        failed: OSError | None = self.ranks.broadcast(error)
        return failed if error is None else error

    def _complete(self, save: _Pending, files: Mapping[str, Any]) -> None:
        """Write the state, which names all files, and add the checkpoint to the saved ones."""
        best_path = save.target if save.best else self.best()
        name = best_path.name if best_path else None
        _write_state(save.beside, files, {"state": save.state, "best": name, "temporary": save.temporary})
        atomic.replace_folder(save.beside, save.target)
        self._point(save.target, best_path)
        if self.temporary not in (None, save.target):
            atomic.remove_folder(self.temporary)
        self.temporary = save.target if save.temporary else None
        if not save.temporary:
            self._prune()

    def go_on_from(self, newest: Path) -> None:
        """Complete a killed save: write the pointers, and delete the checkpoints that it would have deleted."""
        best = self.best()
        self._point(newest, best)
        for path in self.all():
            if path not in (newest, best) and _is_temporary(path):
                atomic.remove_folder(path)
        self.temporary = newest if _is_temporary(newest) else None
        if self.temporary is None:
            self._prune()

    def _point(self, newest: Path, best: Path | None) -> None:
        for pointer, path in (("last", newest), ("best", best)):
            name = b"" if path is None else f"{path.name}\n".encode()
            at = self.root / pointer
            if name and not (at.is_file() and at.read_bytes() == name):
                atomic.write_file(at, name)

    def _failed(self, beside: Path, target: Path, error: OSError) -> OSError:
        """Remove what was written of a checkpoint. Returns the error to raise."""
        if self.ranks.rank == 0:
            with suppress(OSError):
                atomic.remove(beside)
        kept = next((path for path in reversed(self.all()) if path != target), None)
        rest = f"the checkpoint before it, {kept}, is intact" if kept else "there is no earlier one"
        message = f"the checkpoint {target} could not be saved: {error.strerror or error}; {rest}"
        return OSError(message) if error.errno is None else OSError(error.errno, message)

    def _prune(self) -> None:
        best = self.best()
        for path in self.all()[: -self.keep]:
            if path != best:
                atomic.remove_folder(path)


def _begin(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    atomic.remove(folder)
    folder.mkdir()


def _write_files(folder: Path, files: Mapping[str, CheckpointShard]) -> dict[str, Any]:
    """Write files of tensors. Returns the checksum and length of each."""
    sums = {}
    for name, shard in files.items():
        path = folder / name
        write_tensors(path, shard.tensors, metadata=to_metadata(shard.pieces))
        atomic.sync_file(path)
        sums[name] = {"sha256": atomic.sha256(path), "bytes": path.stat().st_size}
    return sums


def _write_state(folder: Path, files: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    content = {**content, "files": dict(files)}
    text = json.dumps({"sha256": _digest(content), **content}, allow_nan=False)
    atomic.write_file(folder / STATE, text.encode())


# -- reading ----------------------------------------------------------------------------------------------------


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Load the saved state. Raises Damaged, with the file's name, if it was changed since."""
    state: dict[str, Any] = _verified(checkpoint)["state"]
    return state


def load_tensors(checkpoint: Path, name: str) -> dict[str, Tensor]:
    """Load the tensors of one file, or of its shards, to the host. Raises Damaged, with the file's name, if it was changed
    since."""
    tensors = saved_tensors(checkpoint, name)
    files = _verified(checkpoint)["files"]
    for part in _files_of(checkpoint, name, files):
        _check(checkpoint / part, files[part])
    return {path: tensor.read() for path, tensor in tensors.items()}


def saved_tensors(checkpoint: Path, name: str) -> dict[str, Saved]:
    """The tensors of one file, or of its shards, which are read later. Raises Damaged, with the file's name, if one is
    missing; `Checkpoints.check` finds files that were changed."""
    files = _verified(checkpoint)["files"]
    names = _files_of(checkpoint, name, files)
    for part in names:
        _check_size(checkpoint / part, files[part])
    paths = [checkpoint / part for part in names]
    try:
        return saved_in(paths, f"the shards of {checkpoint / name}" if len(paths) > 1 else str(paths[0]))
    except ValueError as error:
        raise Damaged(str(error)) from None


def _files_of(checkpoint: Path, name: str, files: Mapping[str, Any]) -> list[str]:
    names = [name] if name in files else shards_of(name, files)
    if not names:
        raise Damaged(f"the checkpoint {checkpoint} has no {name}")
    return names


def has_tensors(checkpoint: Path, name: str) -> bool:
    """Whether a checkpoint has this file, or shards of it."""
    files = _verified(checkpoint)["files"]
    return name in files or bool(shards_of(name, files))


def check(checkpoint: Path, ranks: Ranks = ALONE) -> None:
    """Check that every file is as it was saved. Several ranks, all of which call it, read different files.

    Raises Damaged, on every rank, with the name of the first that isn't.
    """
    error = None
    try:
        for i, (name, known) in enumerate(_verified(checkpoint)["files"].items()):
            _check_size(checkpoint / name, known)
            if i % ranks.size == ranks.rank:
                _check(checkpoint / name, known)
    except Damaged as raised:
        error = str(raised)
    found = next((text for text in ranks.gather(error) if text is not None), None)
    if found is not None:
        raise Damaged(found)


def _check_size(path: Path, known: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise Damaged(f"{path} is missing")
    if path.stat().st_size != known["bytes"]:
        raise Damaged(f"{path} holds {path.stat().st_size} bytes, not the {known['bytes']} written")


def _check(path: Path, known: Mapping[str, Any]) -> None:
    _check_size(path, known)
    if atomic.sha256(path) != known["sha256"]:
        raise Damaged(f"{path} was changed after it was saved (its SHA-256 differs)")


def _best_of(newest: Path) -> str | None:
    """The name of the best checkpoint."""
    return _verified(newest).get("best")


def _is_temporary(checkpoint: Path) -> bool:
    """Whether the next save deletes it."""
    try:
        content = _verified(checkpoint)
    except Damaged:
        return False
    return bool(content.get("temporary", False))


def _verified(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / STATE
    try:
        content = json.loads(path.read_bytes())
        claimed = content.pop("sha256")
        sound = claimed == _digest(content) and _well_formed(content)
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise Damaged(f"{path} was changed after it was saved (its SHA-256 differs)")
    return content


def _well_formed(content: Mapping[str, Any]) -> bool:
    files = content["files"].values()
    of_files = all(isinstance(known["sha256"], str) and isinstance(known["bytes"], int) for known in files)
    return of_files and isinstance(content["state"], dict) and isinstance(content.get("best"), str | None)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
