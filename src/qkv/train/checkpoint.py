"""Checkpoints: folders of safetensors files and one JSON file, saved whole or not at all, checked by SHA-256 when read.

    checkpoints/
      step-00001000/
        model.safetensors        weights, tied ones once
        optimizer.safetensors    the optimizer's tensors, as `<parameter>/<state>`
        average.safetensors      the running average of the weights, where training keeps one
        state.json               {"sha256": of the rest, "state": {...}, "files": {name: {"sha256", "bytes"}}}
      last                       the name of the newest checkpoint
      best                       the name of the one with the best evaluation

A folder with a name of this form is always complete: it is written beside, under a name with a dot, and renamed.
The pointer `last` may be one save behind when the process was killed between two renames; `newest` asks the folders.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from . import durable
from .weights import Tensors, read_tensors, write_tensors

MODEL, OPTIMIZER, AVERAGE, STATE = "model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{8,})")


class Checkpoints:
    """The checkpoints of one run, of which the last `keep` and the best stay. Opening tidies up after killed saves.

    A `temporary` one, saved because someone interrupted the run, stays until the next save and pushes no other out: the
    run goes on with the checkpoints that it would have had without the interruption.
    """

    def __init__(self, root: Path, keep: int = 3) -> None:
        self.root, self.keep = root, keep
        self.temporary: Path | None = None
        if root.is_dir():
            durable.tidy(root)

    # -- what is there ------------------------------------------------------------------------------------------

    def all(self) -> list[Path]:
        """Every checkpoint, the oldest first."""
        if not self.root.is_dir():
            return []
        found = [path for path in self.root.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        return sorted(found, key=step_of)

    def newest(self) -> Path | None:
        return next(reversed(self.all()), None)

    def best(self) -> Path | None:
        pointer = self.root / "best"
        name = pointer.read_text().strip() if pointer.is_file() else ""
        return self.root / name if _NAME.fullmatch(name) and (self.root / name).is_dir() else None

    # -- saving -------------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        files: Mapping[str, Tensors],
        state: Mapping[str, Any],
        best: bool = False,
        temporary: bool = False,
    ) -> Path:
        """Save a checkpoint, move the pointers to it and drop the oldest.

        Raises OSError where the disk refuses; what was saved before is then untouched.
        """
        target = self.root / f"step-{step:08d}"
        beside = self.root / f".tmp-{target.name}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            _write(beside, files, state)
            durable.replace_folder(beside, target)
            for pointer in ("last", "best") if best else ("last",):
                durable.write_file(self.root / pointer, f"{target.name}\n".encode())
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise self._lost(target, error) from error
        if self.temporary not in (None, target):
            durable.remove_folder(self.temporary)
        self.temporary = target if temporary else None
        if not temporary:
            self._prune()
        return target

    def _lost(self, target: Path, error: OSError) -> OSError:
        kept = next((path for path in reversed(self.all()) if path != target), None)
        rest = f"the checkpoint before it, {kept}, is intact" if kept else "there is no earlier one"
        said = f"the checkpoint {target} could not be saved: {error.strerror or error}; {rest}"
        return OSError(said) if error.errno is None else OSError(error.errno, said)

    def _prune(self) -> None:
        best = self.best()
        for path in self.all()[: -self.keep]:
            if path != best:
                durable.remove_folder(path)


def _write(folder: Path, files: Mapping[str, Tensors], state: Mapping[str, Any]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    sums = {}
    for name, tensors in files.items():
        path = folder / name
        write_tensors(path, tensors)
        durable.sync_file(path)
        sums[name] = {"sha256": durable.sha256(path), "bytes": path.stat().st_size}
    content = {"state": dict(state), "files": sums}
    text = json.dumps({"sha256": _digest(content), **content}, allow_nan=False)
    durable.write_file(folder / STATE, text.encode())


# -- reading ----------------------------------------------------------------------------------------------------


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def load_state(checkpoint: Path) -> dict[str, Any]:
    """The state that was saved. Raises ValueError that names the file where it was changed since."""
    return _verified(checkpoint)["state"]


def load_tensors(checkpoint: Path, name: str) -> dict[str, Tensor]:
    """One file's tensors, on the host. Raises ValueError that names the file where it was changed since."""
    path = checkpoint / name
    known = _verified(checkpoint)["files"].get(name)
    if known is None:
        raise ValueError(f"the checkpoint {checkpoint} has no {name}")
    if not path.is_file():
        raise ValueError(f"{path} is missing; {_ADVICE}")
    if path.stat().st_size != known["bytes"]:
        raise ValueError(f"{path} holds {path.stat().st_size} bytes, not the {known['bytes']} written; {_ADVICE}")
    if durable.sha256(path) != known["sha256"]:
        raise ValueError(f"{path} was changed after it was saved (its SHA-256 differs); {_ADVICE}")
    return read_tensors(path)


_ADVICE = "delete this checkpoint to go on from the one before"


def _verified(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / STATE
    try:
        content = json.loads(path.read_bytes())
        claimed = content.pop("sha256")
        sound = claimed == _digest(content)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {_ADVICE}") from None
    except (ValueError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{path} was changed after it was saved (its SHA-256 differs); {_ADVICE}")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
