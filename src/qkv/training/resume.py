"""Resume an interrupted training from its newest intact checkpoint."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.ranks import Ranks
from ..core.spec import brief
from .checkpoints import checkpoint, rng
from .checkpoints.checkpoint import AVERAGE, MODEL, OPTIMIZER, STATE, Checkpoints, Damaged
from .checkpoints.slices import Parts
from .checkpoints.state import TrainingState
from .checkpoints.weights import all_finite, listed, load_model, load_optimizer, optimizer_tensors
from .early_stopping import BestEvaluation
from .logging.step_metrics import StepMetrics
from .settings import Training
from .step import Stepper
from .strategy import Strategy
from .weight_averaging import AveragedModel

Say = Callable[[str], None]


def snapshot(
    state: TrainingState, stepper: Stepper, training: Training, meter: StepMetrics, fingerprint: dict[str, Any]
) -> dict[str, Any]:
    """The content of a checkpoint besides tensors. All ranks call it."""
    first, *others = stepper.ranks.gather(rng.capture())
    return {
        "run": state.to_dict(),
        "window": meter.state(),
        "scaler": stepper.mixed.state(),
        "rng": first,
        **({"rng_of_other_ranks": others, "rng_rows": stepper.strategy.row_numbers} if others else {}),
        "optimizer": training.optimizer.kind,
        "training": training.to_dict(),
        "fingerprint": fingerprint,
    }


def restore(
    path: Path,
    model: nn.Module,
    stepper: Stepper,
    training: Training,
    meter: StepMetrics,
    average: AveragedModel | None,
) -> tuple[TrainingState, dict[str, Any]]:
    """Load a checkpoint: tensors into model, optimizer and average; returns the run's state and the whole snapshot.

    Raises Damaged if the files are broken, ValueError if the optimizer's settings do not fit its state.
    """
    checkpoint.check(path, stepper.ranks)
    saved = checkpoint.load_state(path)
    try:
        state = TrainingState.from_dict(saved["run"])
        meter.load(saved["window"])
        stepper.mixed.load(saved["scaler"])
        restore_rng(saved, stepper.strategy, stepper.draws_alike)
        before, settings = saved["optimizer"], saved["training"]["optimizer"]
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        what = " ".join(str(error).split())
        raise Damaged(f"{path / STATE} holds no state of a run ({type(error).__name__}: {what})") from None
    now = training.optimizer.kind
    if before != now:
        raise ValueError(
            f"{path} was trained with the optimizer {brief(before)}, and {brief(now)} can't continue with that one's state; "
            f"resume with {brief(before)}, or start a new run"
        )
    strategy = stepper.strategy
    load_model(model, strategy.model_part(checkpoint.saved_tensors(path, MODEL)), str(path / MODEL))
    tensors = strategy.optimizer_part(checkpoint.saved_tensors(path, OPTIMIZER))
    _restore_optimizer(path, tensors, stepper, training, settings)
    if average and checkpoint.has_tensors(path, AVERAGE):
        average.load(strategy.model_part(checkpoint.saved_tensors(path, AVERAGE)))
    _warn_of_no_numbers(path, model, stepper.optimizer)
    return state, saved


def _warn_of_no_numbers(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Warn of NaN and infinite numbers in what this rank has loaded from a checkpoint. A training writes none."""
    parameters = {f"{MODEL}: {name}": parameter.detach() for name, parameter in model.named_parameters()}
    states = {f"{OPTIMIZER}: {name}": tensor for name, tensor in optimizer_tensors(optimizer).items()}
    tensors = parameters | states
    if all_finite(tensors.values()):
        return
    broken = [name for name, tensor in tensors.items() if not all_finite([tensor])]
    warnings.warn(
        f"{path} has NaN or infinite numbers in {listed(broken)}, so the training may not recover; begin anew, "
        "or remove this checkpoint to continue from the one before it",
        stacklevel=2,
    )


def restore_rng(saved: dict[str, Any], strategy: Strategy, alike: bool) -> None:
    """Restore this rank's random generators, or if the ranks were others, or had other rows, seed new ones. See
    `rng.seed_rank` for `alike`."""
    states = [saved["rng"], *saved.get("rng_of_other_ranks", ())]
    rows, rank = strategy.row_numbers, strategy.ranks.rank
    if saved.get("rng_rows", [0]) == rows:
        rng.restore(states[rank])
        return
    rng.restore(states[0])
    drawn = torch.get_rng_state()
    if rows[rank]:
        rng.seed_all(random.getrandbits(32) + rows[rank])
    if alike:
        torch.set_rng_state(drawn)


def _restore_optimizer(
    path: Path, tensors: Parts, stepper: Stepper, training: Training, before: dict[str, Any]
) -> None:
    now = training.optimizer.to_dict()
    try:
        load_optimizer(stepper.optimizer, tensors, str(path / OPTIMIZER))
    except ValueError as error:
        changed = [f"{name} from {before.get(name)} to {now[name]}" for name in now if before.get(name) != now[name]]
        if not changed:
            raise
        raise ValueError(
            f"{error}; the optimizer's settings were changed ({', '.join(changed)}): resume with the old ones, or "
            "start a new run"
        ) from None


def newest_sound(
    store: Checkpoints, load: Callable[[Path], tuple[TrainingState, dict[str, Any]]], ranks: Ranks, say: Say
) -> tuple[Path, tuple[TrainingState, dict[str, Any]]]:
    """Load the newest checkpoint that is intact. Damaged ones after it are set aside, with a note."""
    damaged: dict[Path, Damaged] = {}
    for path in reversed(store.all()):
        try:
            loaded = load(path)
        except Damaged as error:
            damaged[path] = error
            continue
        ranks.barrier()
        for broken, why in damaged.items():
            aside = store.set_aside(broken) if ranks.rank == 0 else broken
            say(f"Note: {why}. Going on from {path.name}; what is left of the newer one is in {aside}.")
        if ranks.rank == 0:
            store.go_on_from(path)
        return path, loaded
    why = next(iter(damaged.values()))
    raise ValueError(
        f"no checkpoint in {store.root.parent} is intact ({why}); begin anew in another folder, or replace this one"
    )


def forget_lost_best(store: Checkpoints, state: TrainingState, newest: Path, say: Say) -> None:
    """Forget the best evaluation if its checkpoint is gone or damaged."""
    best = store.best()
    if not state.best.step or best == newest:
        return
    try:
        if best is None:
            raise Damaged(f"the best checkpoint, of step {state.best.step:,}, is gone")
        checkpoint.check(best, store.ranks)
    except Damaged as error:
        state.best = BestEvaluation(stale=state.best.stale)
        say(f"Note: {error}. From here on, new evaluations decide which weights are best.")
