"""Kill −9 a run at random moments, resume it until it ends, compare with one that nobody disturbed. Forks."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from train_stand_in import Tiny, train

from qkv.train.checkpoint import MODEL, OPTIMIZER


def run(out: Path, steps: int) -> None:
    train(out, Tiny(), max_steps=steps, save_every=7, eval_every=11, keep=2, resume=True)


def contents(out: Path, steps: int) -> list[bytes]:
    newest = out / f"checkpoints/step-{steps:08d}"
    return [(path).read_bytes() for path in (newest / MODEL, newest / OPTIMIZER, out / MODEL)]


def main(out: Path, seed: int, trials: int) -> None:
    torch.set_num_threads(1)
    steps, draw, kills = 30 * trials, random.Random(seed), 0
    began = time.monotonic()
    run(out / "whole", steps)
    took = time.monotonic() - began
    while True:
        child = os.fork()
        if child == 0:
            run(out / "killed", steps)
            os._exit(0)
        if kills < trials:
            time.sleep(draw.uniform(0.0, 1.5 * took / trials))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            kills += 1
        else:
            break
    print(json.dumps({"kills": kills, "same": contents(out / "whole", steps) == contents(out / "killed", steps)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
