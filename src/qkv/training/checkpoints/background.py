"""Asynchronous checkpoints: a thread writes copies of the tensors while training continues.

The copies, a snapshot on the host, need as much memory as the checkpoint has bytes, until the files are written. As the
manifest of a checkpoint is written last, by `Checkpoints.finish`, a crash before it leaves the previous checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from .pieces import CheckpointShard
from .weights import Tensors

Sums = dict[str, Any]
Write = Callable[[Path, Mapping[str, CheckpointShard]], Sums]


class Writing:
    """Files of tensors that are being written to a folder. `result` gives their checksums when they are, or the error."""

    def __init__(
        self, write: Write, folder: Path, files: Mapping[str, Tensors | CheckpointShard], background: bool
    ) -> None:
        self._sums: Sums = {}
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        shards = {
            name: shard if isinstance(shard, CheckpointShard) else CheckpointShard(shard, {})
            for name, shard in files.items()
        }
        if not background:
            self._run(write, folder, shards)
            return
        copies = {name: copied(shard) for name, shard in shards.items()}
        self._thread = threading.Thread(target=self._run, args=(write, folder, copies), daemon=True)
        self._thread.start()

    def _run(self, write: Write, folder: Path, files: Mapping[str, CheckpointShard]) -> None:
        try:
            self._sums = write(folder, files)
        except OSError as error:
            self._error = error

    @property
    def done(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def result(self) -> tuple[Sums, OSError | None]:
        """Wait until the files are written. Returns their checksums, and the error if one could not be."""
        if self._thread is not None:
            self._thread.join()
        return self._sums, self._error


def copied(shard: CheckpointShard) -> CheckpointShard:
    """The same tensors, copied to the host's memory."""
    copies = {name: torch.empty_like(t, device="cpu").copy_(t.detach()) for name, t in shard.tensors.items()}
    return CheckpointShard(copies, shard.pieces)


def snapshot_bytes(files: Mapping[str, Tensors | CheckpointShard]) -> int:
    """How much memory the copies of these tensors take."""
    shards = (content.tensors if isinstance(content, CheckpointShard) else content for content in files.values())
    return sum(t.numel() * t.element_size() for tensors in shards for t in tensors.values())
