"""Log to TensorBoard beside `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TensorBoard:
    """TensorBoard's files in `folder`; what a resumed run repeats is hidden."""

    def __init__(self, folder: Path, after: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=after + 1)

    def write(self, type: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{type}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()
