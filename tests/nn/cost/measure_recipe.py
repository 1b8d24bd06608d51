"""Trains a recipe for some steps as the command line does, and prints by how many bytes the process grew beside the
prediction that was made before, as JSON: `python tests/nn/cost/measure_recipe.py lm data.path=book.txt`.

With QKV_TEST_GROUP, a memory control group that this process is in, the group's limit is set to what is used at the time of
the prediction, the prediction, and 15 % of both: training beyond it is killed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from qkv.cli import allocator

allocator.bound_kernels()
allocator.keep_pages()

import torch._dynamo  # noqa: E402  (after the allocator's settings; every optimizer imports it at its first step, 70 MiB)
from measure_process import status  # noqa: E402

from qkv.nn.cost.memory import (  # noqa: E402
    TrainingMemory,
    predict,
)
from qkv.runs.recipes.recipe import Recipe  # noqa: E402
from qkv.runs.train import memory_check  # noqa: E402
from qkv.runs.train.train import train  # noqa: E402


def limit(group: Path, more: int) -> None:
    """Allow a control group, of version 2 or 1, so many bytes more than it uses."""
    for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        if (group / most).is_file():
            (group / most).write_text(str(int((group / used).read_text()) + more))


def main(name: str, *settings: str) -> None:
    torch.set_num_threads(1)
    before: list[tuple[int, TrainingMemory | None]] = []

    def check(room: memory_check.MemoryCheck) -> None:
        before.append((status("VmRSS"), predict(room.spec, room.shape, room.plan)))
        if (group := os.environ.get("QKV_TEST_GROUP")) and before[-1][1] is not None:
            resident, peak = before[-1][0], before[-1][1].peak
            limit(Path(group), peak + int(0.15 * (resident + peak)))

    memory_check.MemoryCheck.check = check  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        train(Recipe.load(name, settings), Path(folder) / "run", device="cpu")
    resident, memory = before[0]
    said = {"resident": resident, "grown": status("VmHWM") - resident}
    print(json.dumps(said | ({} if memory is None else {"predicted": memory.peak, **memory.__dict__})))


if __name__ == "__main__":
    main(*sys.argv[1:])
