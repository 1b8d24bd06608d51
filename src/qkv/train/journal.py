"""What a run tells: every line to `metrics.jsonl`, the main things to the person who watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from .boards import Board, TensorBoard, WandBoard
from .meter import Measured
from .metrics import MetricsLog
from .optimizer.groups import count
from .outcome import Ending
from .progress import Display
from .settings import Training


class Journal:
    """The log and the display of one run. A rank that doesn't lead keeps neither."""

    def __init__(self, out: Path, display: Display, training: Training, after: int, leads: bool) -> None:
        self.display, self.training = display, training
        self.log = MetricsLog(out / "metrics.jsonl", after, _boards(out, training, after)) if leads else None

    def write(self, type: str, step: int, **values: Any) -> None:
        if self.log is not None:
            self.log.write(type, step, **values)

    def event(self, event: str, step: int, **values: Any) -> None:
        self.write("event", step, event=event, **values)

    def begin(self, step: int, before: dict[str, Any] | None, model: nn.Module) -> None:
        """The run starts, or goes on with the settings it had `before`, maybe others."""
        frozen, parameters = count(model)
        if frozen:
            trained = parameters - frozen
            share = (
                f"{100 * trained / parameters:.2g}"
                if trained < parameters / 10
                else f"{100 * trained / parameters:.0f}"
            )
            self.display.say(f"Training {trained:,} of {parameters:,} parameters ({share} %); the others are frozen.")
        remark = self.training.schedule.remark(self.training.max_steps)
        if remark:
            self.display.say(f"Note: {remark}.")
        if before is None:
            self.event("started", step, parameters=parameters, frozen=frozen)
            return
        now = self.training.to_dict()
        changed = {name: [before.get(name), value] for name, value in now.items() if before.get(name) != value}
        self.event("resumed", step, changed=changed)
        note = f" with other settings than before: {', '.join(changed)}" if changed else ""
        self.display.say(f"Resumed after step {step:,}{note}.")

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
        remark = self.training.schedule.hindsight(step)
        if remark and ending not in ("interrupted", "max_steps"):
            self.display.say(f"Note: {remark}.")

    def final(self, step: int, metrics: dict[str, float], elapsed: float, source: str) -> None:
        self.write("final", step, **metrics, elapsed=elapsed, weights=source)
        self.display.evaluation(step, metrics, f"({source})")

    def bad_step(self, done: Measured) -> None:
        self.event("bad step", done.step, loss=done.loss, grad_norm=done.grad_norm, **self._data(done.position))
        norm = f"the loss is {done.loss:g} and the gradients' norm {done.grad_norm:g}"
        self.display.say(f"step {done.step:,} made no update: {norm}")

    def empty_step(self, step: int, position: dict[str, Any] | None) -> None:
        self.event("empty step", step, **self._data(position))
        self.display.say(f"step {step:,} made no update: every label is ignored")

    def _data(self, position: dict[str, Any] | None) -> dict[str, Any]:
        return {"position": position, "batches": self.training.accumulate}

    def sync(self) -> None:
        if self.log is not None:
            self.log.sync()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()


def _boards(out: Path, training: Training, after: int) -> list[Board]:
    boards: list[Board] = []
    if training.tensorboard:
        boards.append(TensorBoard(out / "tensorboard", after))
    if training.wandb:
        boards.append(WandBoard(training.wandb, out, training.to_dict(), after))
    return boards
