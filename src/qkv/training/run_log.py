"""Log a training: everything to `metrics.jsonl` and the loggers, the main events to the terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from .logging.metrics_file import Callback, Logger, MetricsLog
from .logging.progress_bar import ProgressBar
from .logging.step_metrics import StepRecord
from .logging.tensorboard import TensorBoard
from .logging.wandb import WandB, WandBoard
from .optimizers.parameter_groups import count
from .result import Ending
from .settings import Training
from .threads import ThreadChoice


class RunLog:
    """The log and the progress display of one training. Only rank 0 writes a log.

    after, pending: the step that the run continues from, and whether steps up to it are still to be logged.
    """

    def __init__(
        self,
        out: Path,
        display: ProgressBar,
        training: Training,
        after: int,
        leads: bool,
        pending: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.display, self.training = display, training
        loggers = _loggers(out, training, after) if leads else []
        self.log = MetricsLog(out / "metrics.jsonl", after, loggers, pending, callbacks) if leads else None

    def write(self, type: str, step: int, **values: Any) -> None:
        if self.log is not None:
            self.log.write(type, step, **values)

    def event(self, event: str, step: int, **values: Any) -> None:
        self.write("event", step, event=event, **values)

    def begin(self, step: int, before: dict[str, Any] | None, model: nn.Module) -> None:
        """Log the start of a training, or that it is resumed, with the settings that differ from those `before`."""
        frozen, parameters = count(model)
        if frozen:
            trained = parameters - frozen
            share = (
                f"{100 * trained / parameters:.2g}"
                if trained < parameters / 10
                else f"{100 * trained / parameters:.0f}"
            )
            self.display.say(f"Training {trained:,} of {parameters:,} parameters ({share} %); the others are frozen.")
        remark = self.training.schedule.remark(self.training.max_steps, self.training.paced)
        if remark:
            self.display.say(f"Note: {remark}.")
        if before is None:
            self.event("started", step, parameters=parameters, frozen=frozen)
            return
        changed = _changes(before, self.training.to_dict())
        self.event("resumed", step, changed=changed)
        self.display.say(f"Resumed after step {step:,}{_listed(changed)}.")
        most = self.training.max_steps
        if most is not None and step > most:
            self.display.say(f"Note: {step:,} steps are done already, more than max_steps={most:,}; none is added.")

    def differs(self, step: int, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Report the data, tokenizer or threads that changed since the checkpoint."""
        changed = {name: [before[name], value] for name, value in now.items() if before.get(name, value) != value}
        if changed:
            self.event("differs", step, changed=changed)
            short = {name: _short(old, new) for name, (old, new) in changed.items()}
            said = ", ".join(f"{name} {words}" for name, words in short.items())
            self.display.say(f"Note: not as before: {said}. The run continues, but not bit for bit as it would have.")

    def train(self, step: int, line: dict[str, Any]) -> None:
        self.write("train", step, **line)
        self.display.train({"step": step, **line})

    def evaluation(self, step: int, metrics: dict[str, float], elapsed: float, best: bool, stale: int) -> None:
        """`stale` evaluations in a row did not beat the best one: 0 for a new best, more for one that equals it."""
        self.write("eval", step, **metrics, elapsed=elapsed, best=best)
        remark = ("(equals the best)" if stale else "(best)") if best else ""
        if self.training.patience is not None and stale:
            remark += f"  no better {stale} of {self.training.patience} times"
        self.display.evaluation(step, metrics, remark.strip())

    def end(self, step: int, ending: Ending) -> None:
        self.event("interrupted" if ending == "interrupted" else "ended", step, reason=ending)
        remark = self.training.schedule.hindsight(step, self.training.paced)
        if remark and ending not in ("interrupted", "max_steps"):
            self.display.say(f"Note: {remark}.")

    def final(self, step: int, metrics: dict[str, float], elapsed: float, source: str) -> None:
        self.write("final", step, **metrics, elapsed=elapsed, weights=source)
        self.display.evaluation(step, metrics, f"({source})")

    def bad_step(self, done: StepRecord) -> None:
        self.event("bad step", done.step, loss=done.loss, grad_norm=done.grad_norm, **self._data(done.position))
        norm = f"the loss is {done.loss:g} and the gradients' norm {done.grad_norm:g}"
        self.display.say(f"step {done.step:,} made no update: {norm}")

    def empty_step(self, step: int, position: dict[str, Any] | None) -> None:
        self.event("empty step", step, **self._data(position))
        self.display.say(f"step {step:,} made no update: every label is ignored")

    def _data(self, position: dict[str, Any] | None) -> dict[str, Any]:
        return {"position": position, "batches": self.training.accumulate}

    def threads(self, step: int, choice: ThreadChoice) -> None:
        """Log the number of threads, and print it if it has changed."""
        self.event("threads", step, **choice.to_dict())
        if choice.threads != choice.before:
            self.display.say(str(choice))

    def sync(self) -> None:
        if self.log is not None:
            self.log.sync()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()


def _changes(before: Any, now: Any, path: str = "") -> dict[str, list[Any]]:
    """The dotted names of the settings that differ, each with both values."""
    if not isinstance(before, dict) or not isinstance(now, dict) or before.get("kind") != now.get("kind"):
        return {} if before == now else {path: [before, now]}
    found: dict[str, list[Any]] = {}
    for name, value in now.items():
        found |= _changes(before.get(name), value, f"{path}.{name}" if path else name)
    return found


def _listed(changed: dict[str, list[Any]]) -> str:
    said = ", ".join(f"{name} {_word(new)}, before {_word(old)}" for name, (old, new) in changed.items())
    return f" with other settings: {said}" if changed else ""


def _word(value: Any) -> str:
    """A setting's value; of a part of several settings, its kind."""
    return str(value.get("kind", value) if isinstance(value, dict) else value)


def _short(before: Any, now: Any) -> str:
    """How a value changed; two checksums say nothing to a reader."""
    return "changed" if isinstance(now, str) and len(now) == 64 else f"{before} → {now}"


def _loggers(out: Path, training: Training, after: int) -> list[Logger]:
    loggers: list[Logger] = []
    if training.tensorboard:
        loggers.append(TensorBoard(out / "tensorboard", after))
    if training.wandb:
        loggers.append(WandBoard(training.wandb, out, training.to_dict(), after))
    return loggers


def check_loggers(tensorboard: bool, wandb: WandB | None) -> None:
    """That what is asked for is installed. Raises ValueError."""
    if tensorboard:
        _require("tensorboard", "training.tensorboard=false")
    if wandb is not None:
        _require("wandb", "training.wandb=false")


def _require(library: str, off: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise ValueError(f"{library} is asked for but not installed: pip install {library}, or set {off}")
