"""Training that is killed, at every file operation and at random moments, and resumed: it must end in the same weights.

    python tests/hostile/kills.py FOLDER --seed 0 --every 1 --kills 100

prints one JSON object for each of three programs. Kills lose no page of the system's cache: what a power cut does is
not tried here.

`saves`:   a stand-in model; the process kills itself at its n-th file operation, for every n there is, and so does the
           process that resumes it, once, at an operation drawn by the seed.
`runs`:    the same for a whole run by a recipe: tokenizer, checkpoints, weights, evaluation, report.
`moments`: `qkv train` with worker processes, killed or interrupted from outside at moments drawn by the seed.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import safetensors.torch
import torch

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

OPERATIONS = ("rename", "replace", "fsync", "unlink", "remove", "rmdir", "mkdir", "chmod")


@dataclass
class Figures:
    """How many runs were compared, how many kills they had, and what was wrong: nothing, or sentences."""

    program: str
    runs: int = 0
    kills: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


# -- a process that kills itself ------------------------------------------------------------------------------------


class Countdown:
    """Kills this process before its n-th file operation; a file of tensors is also met half written."""

    def __init__(self, n: int) -> None:
        self.left = n

    def due(self) -> bool:
        self.left -= 1
        return self.left < 0

    def install(self) -> None:
        from qkv.nn.kv_cache import io as caches
        from qkv.training.checkpoints import weights

        for name in OPERATIONS:
            setattr(os, name, self._counted(getattr(os, name)))
        builtins.open = io.open = self._opening(io.open)  # type: ignore[assignment]
        for module in (weights, caches):
            module.save_file = self._saving(module.save_file)  # type: ignore[attr-defined]

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if self.due():
                die()
            return real(*args, **options)

        return counted

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and self.due():
                die()
            return real(file, mode, *args, **options)

        return opening

    def _saving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def saving(tensors: Any, path: Any, metadata: Any = None) -> Any:
            if self.due():
                die()
            if self.due():
                content = safetensors.torch.save(tensors, metadata)
                Path(path).write_bytes(content[: len(content) // 2])
                die()
            return real(tensors, path, metadata)

        return saving


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def forked(work: Callable[[], None], dies_at: int | None = None) -> bool:
    """Do some work in a separate process; whether it was killed. Raises RuntimeError if the work itself failed."""
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+") as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                if dies_at is not None:
                    Countdown(dies_at).install()
                work()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        log.seek(0)
        if status != 0:
            raise RuntimeError(f"it ended with status {status}: {log.read()[-2000:]}")
        return False


def every_operation(
    program: str,
    folder: Path,
    work: Callable[[Path], None],
    facts: Callable[[Path], dict[str, Any]],
    every: int,
    seed: int,
) -> Figures:
    """Kill the work at its operations seed mod every, + every, … until it ends before it is killed."""
    figures, began, draw = Figures(program), time.monotonic(), random.Random(seed)
    with contextlib.redirect_stdout(sys.stderr):
        work(folder / "warm")  # imports and first steps take longer than the rest: do them once, not in every child
    forked(lambda: work(folder / "whole"))
    wanted = facts(folder / "whole")
    n, killed = seed % every, True
    while killed:
        out, again = folder / str(n), draw.randrange(40)
        killed = forked(lambda out=out: work(out), n)  # type: ignore[misc]
        figures.runs, figures.kills = figures.runs + 1, figures.kills + killed
        try:
            figures.kills += forked(lambda out=out: work(out), again)  # type: ignore[misc]
            forked(lambda out=out: work(out))  # type: ignore[misc]
            got = facts(out)
            figures.wrong += [
                f"{name} differs after kills at {n}, {again}" for name in wanted if got[name] != wanted[name]
            ]
        except (RuntimeError, OSError, ValueError) as error:
            figures.wrong.append(f"after kills at operations {n}, {again}: {error}")
        n += every
    figures.seconds = time.monotonic() - began
    return figures


# -- the programs ---------------------------------------------------------------------------------------------------

LOSSES = {3: 2.0, 6: 1.0}  # at other steps far worse: the best checkpoint is an old one, and is given up for a better


def saves(folder: Path, every: int = 1, seed: int = 0) -> Figures:
    from train_stand_in import Tiny, train

    def work(out: Path) -> None:
        outcome = train(
            out,
            Tiny(),
            evaluate=lambda model, step: {"loss": LOSSES.get(step, 10.0 + step)},
            max_steps=11,
            eval_every=3,
            save_every=2,
            keep=1,
            resume=True,
        )
        told = {"source": outcome.source, "metrics": outcome.metrics, "step": outcome.state.step}
        (out / "told").write_text(json.dumps(told))

    def facts(out: Path) -> dict[str, Any]:
        return {
            "what is told": (out / "told").read_text(),
            "the delivered weights": (out / "model.safetensors").read_bytes(),
            **_checkpoints(out),
        }

    return every_operation("saves", folder, work, facts, every, seed)


def runs(folder: Path, every: int = 1, seed: int = 0) -> Figures:
    from run_tiny import TINY

    from qkv.runs.recipes.recipe import Recipe
    from qkv.runs.train.train import train

    recipe = Recipe.load("reverse", [*TINY, "training.keep=1"])

    def work(out: Path) -> None:
        train(recipe, out, resume=True, device="cpu")

    return every_operation("runs", folder, work, of_run, every, seed)


def moments(folder: Path, kills: int = 20, seed: int = 0, steps: int = 60) -> Figures:
    from run_tiny import TINY

    settings = [*TINY, "batching.workers=2", f"training.max_steps={steps}", "training.eval_every=10"]
    command = [sys.executable, "-m", "qkv", "train", "reverse", *settings, "training.save_every=5", "--resume", "--out"]
    figures, began, draw = Figures("moments"), time.monotonic(), random.Random(seed)
    subprocess.run([*command, folder / "whole"], check=True, capture_output=True, timeout=600)
    longest, wanted = time.monotonic() - began, of_run(folder / "whole")
    while figures.kills < kills and not figures.wrong:
        out = folder / str(figures.runs)
        ended, figures.runs = False, figures.runs + 1
        while not ended:
            by = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
            after = draw.uniform(0.0, 1.2 * longest) if figures.kills < kills else None
            ended = _ends([*command, out], after, by, figures)
        try:
            got = of_run(out)
            figures.wrong += [f"{name} of run {out.name} differs" for name in wanted if got[name] != wanted[name]]
        except (OSError, ValueError) as error:
            figures.wrong.append(str(error))
    figures.seconds = time.monotonic() - began
    return figures


def _ends(command: list[Any], after: float | None, by: signal.Signals, figures: Figures) -> bool:
    """Run a command, which gets a signal after so many seconds; whether it came to its end before. All that it started
    must be gone with it."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(by)
            figures.kills += 1
            process.wait(120)
            _, alive = psutil.wait_procs(children, 30)
            figures.wrong += [f"process {one.pid} outlived its parent, ended by {by.name}" for one in alive]
            return False
        if process.returncode != 0:
            log.seek(0)
            figures.wrong.append(f"status {process.returncode}: {log.read()[-2000:]}")
        return True


# -- what two runs must have in common -----------------------------------------------------------------------------


def of_run(out: Path) -> dict[str, Any]:
    evaluation = json.loads((out / "evaluation.json").read_text())
    evaluation.pop("seconds")
    return {
        "the evaluation": evaluation,
        "the files": sorted(path.name for path in out.iterdir()),
        "the delivered weights": (out / "model.safetensors").read_bytes(),
        "the tokenizer": (out / "tokenizer.json").read_bytes(),
        **_checkpoints(out),
    }


def _checkpoints(out: Path) -> dict[str, Any]:
    kept = sorted((out / "checkpoints").iterdir())
    told = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        "what is kept": [path.name for path in kept],
        "the checkpoints": [file.read_bytes() for path in kept for file in sorted(path.glob("*.safetensors"))],
        "the pointers": [path.read_text() for path in kept if path.is_file()],
        "the log": [
            (line["type"], line["step"], line.get("loss")) for line in told if line["type"] in ("train", "eval")
        ],
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--every", type=int, default=1, help="kill at every so many operations")
    asked.add_argument("--kills", type=int, default=100, help="kills at random moments")
    asked.add_argument("--only", choices=["saves", "runs", "moments"])
    given = asked.parse_args()
    torch.set_num_threads(1)
    programs = {
        "saves": lambda place: saves(place, given.every, given.seed),
        "runs": lambda place: runs(place, given.every, given.seed),
        "moments": lambda place: moments(place, given.kills, given.seed),
    }
    wrong = False
    for name, program in programs.items():
        if given.only in (None, name):
            figures = program(given.folder / name)
            wrong = wrong or bool(figures.wrong)
            print(json.dumps(asdict(figures)), flush=True)
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
