"""Kill −9 a run at random moments, resume it until it ends, compare with one that nobody disturbed. Forks."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from train_stand_in import Tiny, train

from qkv.training.checkpoints.checkpoint import MODEL, OPTIMIZER
from qkv.training.logging.metrics_file import read_metrics


def run(out: Path, steps: int) -> None:
    train(out, Tiny(), max_steps=steps, save_every=7, eval_every=11, keep=2, log_every=1, resume=True)


def contents(out: Path, steps: int) -> list[bytes]:
    newest = out / f"checkpoints/step-{steps:08d}"
    return [(path).read_bytes() for path in (newest / MODEL, newest / OPTIMIZER, out / MODEL)]


def wait_for(step: int, out: Path) -> None:
    """Until the run in `out` has logged a step."""
    path = out / "metrics.jsonl"
    while not path.exists() or max((line["step"] for line in read_metrics(path)), default=0) < step:
        time.sleep(0.002)


def main(out: Path, seed: int, trials: int) -> None:
    torch.set_num_threads(1)
    steps, draw, kills = 20 * trials, random.Random(seed), 0
    run(out / "whole", steps)
    while True:
        child = os.fork()
        if child == 0:
            run(out / "killed", steps)
            os._exit(0)
        if kills < trials:
            wait_for(18 * kills + draw.randrange(18), out / "killed")
            time.sleep(draw.uniform(0.0, 0.01))
            os.kill(child, signal.SIGKILL)
            kills += 1
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
    print(json.dumps({"kills": kills, "same": contents(out / "whole", steps) == contents(out / "killed", steps)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
