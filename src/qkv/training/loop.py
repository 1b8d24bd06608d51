"""The training loop: `fit` runs it, and `Trainer` implements its events (step, evaluate, save, deliver)."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import nn

from ..core.batch import Batch
from ..core.interrupt import Interrupt
from ..core.ranks import ALONE, Ranks
from ..core.spec import brief
from . import threads
from .causal_check import warn_of_lookahead
from .checkpoints import checkpoint, rng
from .checkpoints.background import snapshot_bytes
from .checkpoints.checkpoint import AVERAGE, MODEL, OPTIMIZER, Checkpoints, Damaged
from .checkpoints.slices import Parts
from .checkpoints.state import TrainingState
from .checkpoints.weights import (
    Tensors,
    all_finite,
    learned,
    load_model,
    model_tensors,
    optimizer_tensors,
)
from .logging.metrics_file import Callback
from .logging.progress_bar import ProgressBar
from .logging.step_metrics import StepMetrics, StepRecord
from .objective import Objective
from .result import Diverged, Ending, TrainingResult
from .resume import forget_lost_best, newest_sound, restore, restore_rng, snapshot
from .run_log import RunLog, check_loggers
from .settings import Training
from .step import Stepper
from .strategy import Strategy
from .weight_averaging import AveragedModel, ExponentialMovingAverage, LastCheckpoints, mean_of, replace_by_mean

AGREEMENT = 1.0  # seconds between two agreements of the ranks

OpenStream = Callable[[dict[str, Any] | None], Iterator[Batch]]
Evaluate = Callable[[nn.Module, int], dict[str, float]]


def fit(
    model: nn.Module,
    open_stream: OpenStream,
    objective: Objective,
    training: Training,
    *,
    out: Path,
    seed: int = 0,
    evaluate: Evaluate | None = None,
    resume: bool = False,
    begin: Callable[[], None] | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    ranks: Ranks = ALONE,
    distribute: Callable[[nn.Module], Strategy] | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Train a model, and leave the delivered weights in it and in `out`/model.safetensors.

    open_stream:     gives the batches that follow a position, or all from the first for None.
    evaluate:        `(model in evaluation mode, step)` → named metrics; leaves no trace in the random generators.
    resume:          continue from the newest sound checkpoint in `out`; from the beginning if there is none.
    begin:           called when all settings are known to fit together, before anything is written into `out`.
    fingerprint:     what the run rests on (data, tokenizer …), JSON-able. It is kept in checkpoints, and where a resumed
                     run finds another, that is told.
    ranks, distribute: the processes that train the model together, and how it is distributed over them; by default each has
                     the whole model. All ranks call `fit` with the same arguments, and streams of which each gives one
                     rank's rows of the same batches.
    flops_per_token: of forward and backward, per token as `Batch.tokens` counts them; with `peak_flops` (per second)
                     it gives the MFU, model FLOPs utilization.
    callbacks:       called with every record of `metrics.jsonl`.

    Resumed from any checkpoint, a run continues bit for bit as if it had not stopped (same machine, threads, settings).
    Raises Diverged, a ValueError, after `max_bad_steps` and if the run has no finite weights to deliver; ValueError for
    settings or files that don't fit together; and OSError if writing fails.
    """
    display = ProgressBar(
        console, training.max_steps, training.max_time, shown=ranks.rank == 0, max_epochs=training.max_epochs
    )
    stepper = Stepper(model, objective, training, ranks, None if distribute is None else distribute(model))
    trainer = Trainer(model, stepper, training, Path(out), evaluate, ranks, display)
    trainer.fingerprint |= fingerprint or {}
    trainer.callbacks = callbacks
    trainer.utilization = flops_per_token / peak_flops if flops_per_token and peak_flops else None
    trainer.start(open_stream, seed, resume, begin)
    if ranks.rank == 0:
        warn_of_lookahead(model, objective)
    with display, Interrupt(display.say) as interrupt, closing(trainer):
        while True:
            ending = trainer.ending(trainer.agree(interrupt.requested))
            if trainer.must_evaluate(ending):
                trainer.evaluate()
                ending = ending or trainer.ending(trainer.agree(interrupt.requested))
            if trainer.must_save(ending):
                trainer.save(ending)
            if ending:
                return trainer.deliver(ending)
            trainer.step()


class Trainer:
    """One run: the model with what moves it, and everything that is counted, kept and told about it."""

    utilization: float | None = None  # MFU per (token per second)
    callbacks: Sequence[Callback] = ()
    _agreed: float | None = None  # the time of all ranks at their last agreement
    _agreed_at = _apart = 0  # its step, and the number of steps until the next
    _told = False  # that checkpoints are written in the background

    def __init__(
        self,
        model: nn.Module,
        stepper: Stepper,
        training: Training,
        out: Path,
        evaluator: Evaluate | None,
        ranks: Ranks,
        display: ProgressBar,
    ) -> None:
        self.model, self.stepper, self.training, self.out = model, stepper, training, out
        self.evaluator, self.ranks, self.display = evaluator, ranks, display
        compiled = training.compile is True
        self.threads = threads.tuner(training.threads, compiled, ranks.size, stepper.device)
        self.fingerprint: dict[str, Any] = {"threads": torch.get_num_threads()}
        self.store = Checkpoints(out / "checkpoints", training.keep, ranks)
        self.state, self.meter = TrainingState(), StepMetrics()
        self.running: AveragedModel | None = None
        self.unsaved = self.exhausted = False

    # -- beginning ----------------------------------------------------------------------------------------------

    def start(self, open_stream: OpenStream, seed: int, resume: bool, begin: Callable[[], None] | None = None) -> None:
        """Make everything stand where the run begins, or where its newest sound checkpoint left it."""
        check_loggers(self.training.tensorboard, self.training.wandb)
        running = self.training.average
        self.running = AveragedModel(running, self.model) if isinstance(running, ExponentialMovingAverage) else None
        saved = self._resume() if resume and self.store.newest() else None
        if begin is not None:
            begin()
        newest = self.store.newest()
        if newest and not resume:
            raise ValueError(f"{self.out} already holds a run with {newest.name}; resume it, or choose another folder")
        pending = not self.meter.empty
        leads = self.ranks.rank == 0
        self.log = RunLog(self.out, self.display, self.training, self.state.step, leads, pending, self.callbacks)
        self.log.begin(self.state.step, saved["training"] if saved else None, self.model)
        self.display.begins_at(self.state.step)
        self.stream = iter(open_stream(self.state.position))
        if saved:
            self._begin_threads(saved.get("fingerprint", {}))
            self.log.differs(self.state.step, saved.get("fingerprint", {}), self.fingerprint)
            restore_rng(saved, self.stepper.strategy, self.stepper.draws_alike)
        else:
            number = self.stepper.strategy.row_numbers[self.ranks.rank]
            rng.seed_rank(seed, number, self.stepper.draws_alike)
        self._born = time.monotonic() - self.state.elapsed
        self.model.train()

    def _resume(self) -> dict[str, Any]:
        path, (self.state, saved) = newest_sound(self.store, self._load, self.ranks, self.display.say)
        forget_lost_best(self.store, self.state, path, self.display.say)
        return saved

    def _load(self, path: Path) -> tuple[TrainingState, dict[str, Any]]:
        return restore(path, self.model, self.stepper, self.training, self.meter, self.running)

    # -- one step -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Fetch the batches of one optimizer step, take it, and note what it gave."""
        began = time.perf_counter()
        with self._saving_first():
            batches = list(itertools.islice(self.stream, self.training.accumulate))
        if not batches:
            self._end_of_data()
            return
        if self.threads is not None and self.threads.due:
            self._choose_threads(batches)
            began = time.perf_counter()
        state, before = self.state, self.state.position
        state.step += 1
        passed = batches[-1].position.get("passed") or 0.0
        taken = self.stepper.take(batches, self.training.lr(state.step, self.elapsed, passed))
        state.move(batches[-1].position)
        self.unsaved = True
        known, later = (taken.counted, None) if isinstance(taken.counted, tuple) else ((0, 0), taken.counted)
        record = StepRecord(state.step, known[0], before, tokens=known[1])
        self.meter.add(record, taken.loss, taken.grad_norm, taken.bad, taken.values, later)
        if self.running:
            self.running.update(state.step)
        logs = self._falls_on(self.training.log_every)
        if logs or self.stepper.device.type == "cpu":
            self._synchronize()
        seconds = time.perf_counter() - began
        self.meter.time(seconds)
        if self.threads is not None:
            self.threads.watch(taken.tokens, seconds)
        if logs:
            self._log_line()
        self.display.at(state.step, self.elapsed, state.epochs)

    def _begin_threads(self, saved: Mapping[str, Any]) -> None:
        """Compute the first step with as many threads as the checkpoint's last one."""
        if self.threads is not None and "threads" in saved:
            self.threads.begin(saved["threads"])
            self.fingerprint["threads"] = self.threads.threads

    def _choose_threads(self, batches: list[Batch]) -> None:
        assert self.threads is not None
        choice = self.threads.choose(lambda: self.stepper.rehearse(batches[0]))
        self.fingerprint["threads"] = choice.threads
        self.log.threads(self.state.step, choice)

    def _end_of_data(self) -> None:
        if self.state.step == 0:
            raise ValueError("the training data gave no batch: it is empty, or every example was skipped")
        self.exhausted = True

    def _synchronize(self) -> None:
        """Read the steps that the device has finished, and look for steps without an update."""
        for done in self.meter.synchronize():
            self.state.tokens += done.tokens
            if not done.count:
                self.state.guard.refuse(done.step, "empty")
                self.log.empty_step(done.step, done.position)
            elif not done.bad:
                self.state.guard.updated()
            elif math.isfinite(done.loss) and self.stepper.mixed.scaling:
                self.state.guard.overflows += 1
                self.log.event("overflow", done.step)
            else:
                self.state.guard.refuse(done.step, "bad")
                self.log.bad_step(done)

    def _log_line(self) -> None:
        line = self.meter.line()
        rate = line["tokens_per_s"]
        line |= {"mfu": self._mfu(rate)}
        line |= {"lr": self.stepper.lr, "tokens": self.state.tokens, "elapsed": self.elapsed}
        self.log.train(self.state.step, line)

    def _mfu(self, rate: float | None) -> float | None:
        """Return the model FLOPs utilization at a rate in tokens per second, or None once it was impossible (above 1)."""
        if not self.utilization or not rate:
            return None
        if self.utilization * rate > 1:
            self.utilization = None
            self.display.say(
                "The MFU is left out: this is faster than the peak speed, which was measured beside other work."
            )
            return None
        return self.utilization * rate

    # -- evaluating and saving ----------------------------------------------------------------------------------

    def must_evaluate(self, ending: Ending | None) -> bool:
        if self.evaluator is None or ending in ("interrupted", "bad steps") or self.state.evaluated == self.state.step:
            return False
        return bool(ending) or self._falls_on(self.training.eval_every)

    def evaluate(self) -> None:
        """Evaluate, and see whether it is the best yet. If that fails, what was trained is saved first."""
        state, training = self.state, self.training
        self._apart = 0
        with self._saving_first():
            with self.running.in_place() if self.running else nullcontext():
                metrics = self._measure()
            check_metric(training.metric, metrics)
        best = state.best.offer(state.step, metrics[training.metric], metrics, training.mode, training.min_delta)
        state.evaluated, state.metrics, self.unsaved = state.step, metrics, True
        self.log.evaluation(state.step, metrics, self.elapsed, best, state.best.stale)

    def _measure(self) -> dict[str, float]:
        assert self.evaluator is not None
        self.model.eval()
        self.stepper.strategy.gather()
        with rng.preserved(), torch.no_grad():
            metrics = self.evaluator(self.model, self.state.step)
        self.stepper.strategy.scatter()
        self.model.train()
        measured: dict[str, float] = self.ranks.broadcast(metrics)  # the same on every rank, to the last bit
        return measured

    @contextmanager
    def _saving_first(self) -> Iterator[None]:
        """Between steps: what fails inside does so after the steps taken so far are saved.

        Not if other ranks have to help, which may wait elsewhere.
        """
        try:
            yield
        except Exception:
            if self.unsaved and self.ranks.size == 1:
                self.save("interrupted")
            raise

    def must_save(self, ending: Ending | None) -> bool:
        if not self.unsaved or ending == "bad steps":
            return False
        due = self._falls_on(self.training.save_every) and self.state.guard.streak == 0
        return bool(ending) or due or self._is_best()

    def save(self, ending: Ending | None) -> None:
        """Save a checkpoint, unless the weights are not numbers any more: a good one is not given up for those."""
        self._synchronize()
        self.unsaved = False
        tensors = model_tensors(self.model)
        if not self._finite(tensors):
            self.log.event("not saved", self.state.step, reason="the weights hold NaN or infinity")
            return
        self.stepper.strategy.check_replicas()
        self.log.sync()
        average = {AVERAGE: self.running.tensors} if self.running else {}
        strategy, optimizer = self.stepper.strategy, {OPTIMIZER: optimizer_tensors(self.stepper.optimizer)}
        best = self._is_best()
        temporary = ending == "interrupted" and not best and not self._falls_on(self.training.save_every)
        self.state.elapsed = self.elapsed
        saved = snapshot(self.state, self.stepper, self.training, self.meter, self.fingerprint)
        files = strategy.files({MODEL: tensors, **average}, optimizer)
        background = self.training.async_save and ending is None
        if background and not self._told:
            self._told = True
            self.display.say(
                f"Saving in the background; a snapshot takes {snapshot_bytes(files) / 1e6:,.1f} MB of memory."
            )
        self.store.begin(self.state.step, files, saved, best, temporary, background)
        if not background:
            self.store.finish()
            self.ranks.barrier()

    def _finite(self, tensors: Tensors) -> bool:
        """Whether no parameter among a model's tensors holds a NaN or an infinity, on any rank."""
        (broken,) = self.ranks.max([not all_finite(learned(self.model, tensors))])
        return not broken

    def _is_best(self) -> bool:
        return 0 < self.state.best.step == self.state.step

    def _falls_on(self, every: int | Literal["epoch"] | None) -> bool:
        if every == "epoch":
            return self.state.epoch_done
        return every is not None and self.state.step > 0 and self.state.step % every == 0

    # -- ending -------------------------------------------------------------------------------------------------

    def ending(self, interrupted: bool) -> Ending | None:
        """Why the run is over, or None while it isn't."""
        training, state = self.training, self.state
        reasons: dict[Ending, bool] = {
            "bad steps": state.guard.streak >= training.max_bad_steps,
            "interrupted": interrupted,
            "max_steps": training.max_steps is not None and state.step >= training.max_steps,
            "max_epochs": training.max_epochs is not None and (self.exhausted or state.epochs >= training.max_epochs),
            "max_time": training.max_time is not None and self.elapsed >= training.max_time,
            "patience": training.patience is not None and state.best.stale >= training.patience,
            "data": self.exhausted,
        }
        found = next((ending for ending, holds in reasons.items() if holds), None)
        if found is not None:
            self._synchronize()
        nothing_learned = state.guard.streak == state.step > 0  # no step of the run made an update
        return "bad steps" if nothing_learned and found not in (None, "interrupted") else found

    def deliver(self, ending: Ending) -> TrainingResult:
        """Put the weights that the run is for into the model and into its folder."""
        self._synchronize()
        self.store.finish()
        if ending != "interrupted" and not self.meter.empty:
            self._log_line()
        state = self.state
        state.elapsed = self.elapsed
        self.log.end(state.step, ending)
        if ending == "bad steps" or not self._finite(model_tensors(self.model)):
            raise Diverged(state, self.store.newest())
        sets, source, metrics = self._choose()
        own = mean_of([self.stepper.strategy.model_part(tensors) for tensors in sets])
        if not self._finite(own):
            raise Diverged(state, self.store.newest())
        load_model(self.model, own)
        del own
        if isinstance(self.training.average, LastCheckpoints) and self.evaluator and ending != "interrupted":
            metrics = self._measure()
            self.log.final(state.step, metrics, self.elapsed, source)
        weights = self.out / MODEL
        if self.ranks.rank == 0:
            replace_by_mean(weights, sets)
        self.stepper.strategy.gather()
        self.ranks.barrier()
        return TrainingResult(ending, state, metrics, self.store.newest(), weights, source)

    def _choose(self) -> tuple[list[Parts], str, dict[str, float]]:
        """The sets of tensors whose mean to deliver, what they are, and their evaluation if there was one."""
        average, newest = self.training.average, self.store.newest()
        if newest is None and not self.stepper.strategy.shards_model:
            return [model_tensors(self.model)], "the weights as they are", self.state.metrics
        if newest is None:
            raise ValueError("no step was taken, so there are no weights to deliver; raise training.max_steps")
        if isinstance(average, LastCheckpoints):
            paths = list(self._sound(self.store.all()[-average.last :]))
            sets = [checkpoint.saved_tensors(path, MODEL) for path in paths]
            return [*sets], f"the mean of {len(paths)} checkpoints", {}
        best = self.store.best() if self.training.final == "best" else None
        chosen = next(self._sound([best, newest] if best else [newest]))
        name, what = (AVERAGE, "running average") if self.running else (MODEL, "weights")
        step = checkpoint.step_of(chosen)
        known = {self.state.evaluated: self.state.metrics, self.state.best.step: self.state.best.metrics}
        return [checkpoint.saved_tensors(chosen, name)], f"the {what} of step {step:,}", known.get(step, {})

    def _sound(self, paths: list[Path]) -> Iterator[Path]:
        """The checkpoints that can be read, of which the last must be; of the others it is told."""
        for path in paths:
            try:
                checkpoint.check(path, self.ranks)
            except Damaged as error:
                if path == paths[-1]:
                    raise
                self.display.say(f"Note: {error}; it is left out.")
            else:
                yield path

    def close(self) -> None:
        """Let go of the log and of the data, which may have its own workers."""
        self.store.abandon()
        self.log.close()
        if hasattr(self.stream, "close"):
            self.stream.close()

    def agree(self, interrupted: bool) -> bool:
        """Whether any rank was interrupted. With several ranks, also set the time on which all act until the next call.

        The ranks ask one another about once a second, after the same step, and after each evaluation. A save in the
        background is finished here when all ranks have written their files.
        """
        anywhere: float = interrupted
        writing: float = self.store.writing
        if self.ranks.size > 1:
            if self.state.step < self._agreed_at + self._apart:
                return False
            mine = [interrupted, time.monotonic() - self._born, writing]
            anywhere, now, writing = self.ranks.max(mine)
            self._apart = self._steps_apart(now)
            self._agreed, self._agreed_at = now, self.state.step
        if not writing:
            self.store.finish()
        return bool(anywhere)

    def _steps_apart(self, now: float) -> int:
        """The number of steps until the next agreement: a second's steps, and none after the time is up."""
        steps = self.state.step - self._agreed_at
        if self._agreed is None or steps < 1:
            return 1
        left = AGREEMENT if self.training.max_time is None else min(AGREEMENT, self.training.max_time - now)
        return max(1, min(2 * steps, int(left * steps / max(now - self._agreed, 1e-9))))

    @property
    def elapsed(self) -> float:
        """Seconds spent in this run, over all its sessions."""
        return time.monotonic() - self._born if self._agreed is None else self._agreed


def check_metric(metric: str, metrics: Mapping[str, float]) -> None:
    """That an evaluation gives the metric by which the best is chosen. Raises ValueError that names those it gives."""
    if metric not in metrics:
        measured = ", ".join(metrics) or "nothing"
        raise ValueError(f"training.metric is {brief(metric)}, but what is measured is {measured}; give one of these")
