"""Train the runs of a ladder, one after the other or several at a time, and record each outcome at once."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...core import yamls
from ...directories.layout import EVALUATION, METRICS, State, read_json
from ...kernels.threads import set_threads
from ...recipes.recipe import Recipe
from ...training.logging.metrics_file import read_metrics
from ...training.result import Diverged
from ..train import train
from .ladder import Rung

SAVING = 30.0  # seconds in which a worker saves after its parent is gone


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the held-out loss, or why it `diverged`; `seconds` of training; neither if it was interrupted."""

    loss: float | None = None
    seconds: float = 0.0
    diverged: str = ""

    @property
    def interrupted(self) -> bool:
        return self.loss is None and not self.diverged

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_all(rungs: Sequence[Rung], out: Path, device: str, jobs: int, record: Callable[[Rung, Outcome], None]) -> bool:
    """Train each run in a folder of its own below `out`, `jobs` at a time, and call `record` when it ends. A run that was
    started before goes on from its last save. Returns whether all came to an end; a Ctrl-C saves and stops."""
    for rung, outcome in _outcomes(rungs, out, device, jobs):
        if outcome.interrupted:
            return False
        record(rung, outcome)
    return True


def _outcomes(rungs: Sequence[Rung], out: Path, device: str, jobs: int) -> Iterator[tuple[Rung, Outcome]]:
    if jobs == 1:
        yield from ((rung, train_run(rung.recipe, out / rung.name, device)) for rung in rungs)
        return
    context = multiprocessing.get_context("spawn")
    threads = max(torch.get_num_threads() // jobs, 1)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(threads,)) as pool:
        futures: dict[Future[Outcome], Rung] = {
            pool.submit(_in_worker, rung.recipe.to_yaml(), str(out / rung.name), device): rung for rung in rungs
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except KeyboardInterrupt:  # the workers got it too, and save
            pool.shutdown(wait=True, cancel_futures=True)
            yield rungs[0], Outcome()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker(threads: int) -> None:
    """Set the number of threads, and stop when the study's process is gone, as after a kill."""
    set_threads(threads)
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)  # training saves and stops
    time.sleep(SAVING)
    os._exit(1)


def _in_worker(recipe: str, folder: str, device: str) -> Outcome:
    outcome = train_run(Recipe.from_tree(yamls.load(recipe, name="the recipe")), Path(folder), device)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # nobody waits for the outcome, and the next run must not begin
    return outcome


def train_run(recipe: Recipe, folder: Path, device: str) -> Outcome:
    """Train a run, or go on with it; a finished one is only read."""
    state = State.of(folder)
    if state is not State.FINISHED:
        try:
            result = train(
                recipe,
                folder,
                resume=state is State.STARTED,
                device=device,
                console=Console(quiet=True, force_terminal=False),
            )
        except Diverged as error:
            return Outcome(diverged=str(error))
        if result.evaluation is None:
            return Outcome()
    metrics: Mapping[str, float] = read_json(folder / EVALUATION)["metrics"]
    if "loss" not in metrics:
        raise ValueError(
            f"the evaluation of {recipe.name} gives no loss but {', '.join(metrics)}; a scaling study needs a held-out loss"
        )
    loss, seconds = float(metrics["loss"]), _last(folder, "elapsed")
    if not math.isfinite(loss):
        return Outcome(seconds=seconds, diverged="the held-out loss is not finite")
    return Outcome(loss, seconds)


def steps_done(folder: Path) -> int:
    """The last step that a run has logged; 0 before the first."""
    return int(_last(folder, "step"))


def _last(folder: Path, key: str) -> float:
    path = folder / METRICS
    values = [line[key] for line in read_metrics(path) if key in line] if path.is_file() else []
    return float(values[-1]) if values else 0.0
