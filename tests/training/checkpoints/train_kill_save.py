"""Kill −9 processes at random moments of endless saving; say what is left. A script, so it may fork.

Prints one JSON line per trial: the step of the newest checkpoint, or what was wrong with it.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from qkv.training.checkpoints.checkpoint import MODEL, OPTIMIZER, Checkpoints, load_state, load_tensors, step_of

SIZE = 50_000


def save_forever(root: Path) -> None:
    store = Checkpoints(root, keep=2)
    newest = store.newest()
    step = step_of(newest) if newest else 0
    while True:
        step += 1
        tensors = {"w": torch.full((SIZE,), float(step))}
        # every third step is saved twice, so replacing a checkpoint is interrupted too
        for _ in range(2 if step % 3 == 0 else 1):
            store.save(step, {MODEL: tensors, OPTIMIZER: tensors}, {"step": step}, best=step % 5 == 0)


def check(root: Path, at_least: int) -> int:
    """The newest checkpoint is sound, no older than one that was there before, and so is what the pointers name."""
    for pointer in ("last", "best"):
        if (root / pointer).exists():
            named = root / (root / pointer).read_text().strip()
            # only while a checkpoint is being replaced does it stand aside for a moment; opening puts it back
            named = named if named.exists() else named.with_name(f".old-{named.name}")
            load_tensors(named, MODEL)
    store = Checkpoints(root, keep=2)
    newest = store.newest()
    if newest is None:
        return 0
    step = step_of(newest)
    assert step >= at_least, f"step {step} after {at_least}"
    assert load_state(newest) == {"step": step}, newest
    for path in store.all():
        for name in (MODEL, OPTIMIZER):
            assert bool((load_tensors(path, name)["w"] == step_of(path)).all()), f"{path}/{name}"
    assert not list(root.glob(".*")), "leftovers"
    return step


def main(root: Path, trials: int, seed: int) -> None:
    torch.set_num_threads(1)
    draw, step = random.Random(seed), 0
    for _ in range(trials):
        if step > 60:
            shutil.rmtree(root)
            step = 0
        child = os.fork()
        if child == 0:
            save_forever(root)
        time.sleep(draw.uniform(0.001, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            step = check(root, step) if root.exists() else 0
            print(json.dumps({"step": step}), flush=True)
        except (AssertionError, ValueError, OSError) as error:
            print(json.dumps({"wrong": str(error)}), flush=True)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
