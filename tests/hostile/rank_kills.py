"""Ranks that are killed at random moments, and resumed: the run must end in the same weights, bit for bit.

    python tests/hostile/rank_kills.py FOLDER --seed 0 --kills 50

Two processes train a run together. One of them, drawn by the seed, gets SIGKILL at a moment drawn by the seed, and the other
ends with it, as under a launcher; the same command then resumes. Each layout of `LAYOUTS` is taken in turn, and every other
run writes its checkpoints in the background. What is compared, with a run that nobody killed: the delivered weights, every
file of every checkpoint that is kept, the evaluation and the log. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
from kills import Figures, of_run  # noqa: E402

LAYOUTS = (("scale.shard=2",), (), ("scale.tensor=2",), ("scale.pipeline=2",), ("scale.shard=2", "scale.zero=1"))
A_RUN = 5  # kills of one run, at most


def rank_kills(folder: Path, kills: int = 50, seed: int = 0, steps: int = 24) -> Figures:
    from run_tiny import TINY

    import qkv.training.parallel.data_parallel.fully_sharded
    import qkv.training.parallel.data_parallel.replicated
    import qkv.training.parallel.model_parallel.model  # noqa: F401  now, not in every process
    from qkv.runs.recipes.recipe import Recipe
    from qkv.runs.train.train import train

    figures, began, draw = Figures("ranks"), time.monotonic(), random.Random(seed)
    settings = [
        *TINY,
        "training.save_every=3",
        "training.eval_every=6",
        "training.keep=2",
        f"training.max_steps={steps}",
    ]
    with contextlib.redirect_stdout(sys.stderr):
        train(Recipe.load("reverse", list(TINY)), folder / "warm", device="cpu")  # imports take longer than the rest
    known: dict[tuple[str, ...], tuple[float, dict[str, Any]]] = {}
    for number, layout in enumerate(itertools.cycle(LAYOUTS)):
        if figures.kills >= kills or figures.wrong:
            break
        recipe = Recipe.load("reverse", [*settings, *layout, f"training.async_save={str(number % 2 == 0).lower()}"])

        def work(out: Path, recipe: Recipe = recipe) -> None:
            train(recipe, out, resume=True, device="cpu")

        try:
            if layout not in known:
                started, whole = time.monotonic(), folder / f"whole-{number}"
                together(lambda work=work, whole=whole: work(whole))  # type: ignore[misc]
                known[layout] = time.monotonic() - started, of_run(whole)
            longest, wanted = known[layout]
            out, left = folder / str(number), min(A_RUN, kills - figures.kills)
            figures.runs += 1
            ended = False
            while not ended:
                moment = draw.uniform(0.0, 0.9 * longest) if left else None
                killed = together(lambda work=work, out=out: work(out), moment, draw.randrange(2))  # type: ignore[misc]
                figures.kills, left, ended = figures.kills + killed, left - killed, not killed
            got = of_run(out)
            figures.wrong += [
                f"{name} of run {number}, {layout}, differs" for name in wanted if got[name] != wanted[name]
            ]
        except (RuntimeError, OSError, ValueError) as error:
            figures.wrong.append(f"run {number}, {layout}: {error}")
        print(f"{figures.kills} of {kills} kills, {figures.runs} runs", file=sys.stderr, flush=True)
    figures.seconds = time.monotonic() - began
    return figures


def together(work: Callable[[], None], after: float | None = None, victim: int = 0, size: int = 2) -> bool:
    """Do some work in so many ranks, one of which is killed after so many seconds, and then the others; whether it was.
    Raises RuntimeError if the work failed by itself."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        sys.stdout.flush()
        began = time.monotonic()
        running = {_started(rank, size, port, work, log.fileno()): rank for rank in range(size)}
        killed, failed = False, ""
        while running:
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    rank = running.pop(pid)
                    if status and not killed and not failed:
                        failed = f"rank {rank} ended with status {status}"
                        for other in running:
                            os.kill(other, signal.SIGKILL)
            due = after is not None and not killed and not failed and time.monotonic() - began > after
            found = [pid for pid, rank in running.items() if rank == victim]
            if due and found:
                os.kill(found[0], signal.SIGKILL)
                killed = True
                time.sleep(0.1)  # the others may notice
                for other in running:
                    os.kill(other, signal.SIGKILL)
            time.sleep(0.005)
        if failed:
            log.seek(0)
            raise RuntimeError(f"{failed}: {log.read()[-2000:]}")
        return killed


def _started(rank: int, size: int, port: int, work: Callable[[], None], log: int) -> int:
    """The id of a process that does the work of a rank."""
    pid = os.fork()
    if pid:
        return pid
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--kills", type=int, default=50)
    given = asked.parse_args()
    torch.set_num_threads(1)
    figures = rank_kills(given.folder, given.kills, given.seed)
    print(json.dumps(asdict(figures)), flush=True)
    sys.exit(int(bool(figures.wrong)))


if __name__ == "__main__":
    main()
