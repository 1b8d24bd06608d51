"""What whole runs share: the command and what it took, and the loss on all of the validation text."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

ROWS = 64  # windows in a batch of the final evaluation


def run(command: Sequence[str], folder: Path) -> tuple[str, dict[str, float]]:
    """What a command wrote, and its seconds from start to end and MiB at most. Raises RuntimeError if it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return done.stdout, {"wall_s": seconds, "peak_mib": most}


def validation_loss(loss: Callable[[Tensor, Tensor], Tensor], ids: Tensor, context: int) -> float:
    """Nats a token over all windows of `context` tokens, side by side; `loss(inputs, labels)` is a batch's mean."""
    total = count = 0.0
    with torch.inference_mode():
        for inputs, labels in windows(ids, context):
            total += float(loss(inputs, labels)) * labels.numel()
            count += labels.numel()
    return total / count


def windows(ids: Tensor, context: int) -> Iterator[tuple[Tensor, Tensor]]:
    n = (len(ids) - 1) // context
    inputs, labels = (ids[at : at + n * context].view(n, context) for at in (0, 1))
    yield from zip(inputs.split(ROWS), labels.split(ROWS), strict=True)
