"""Evaluate a training on its splits, deliver its adapter, and write samples, `evaluation.json` and the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ...core.atomic import drop_old
from ...core.ranks import ALONE
from ...core.spec import counted
from ...io.directories.layout import ADAPTER, EVALUATION, EXTREMES, SAMPLES, WEIGHTS, write_json
from ...look.formatting import taken
from ...nn.models.build import AnyModel
from ...training.checkpoints import rng
from ...training.loop import check_metric as check_that_it_is_given
from ...training.result import TrainingResult
from ..evaluate.evaluate import Evaluated, Evaluator, with_baselines
from ..recipes.evaluation import decoded
from ..report.report import write_report
from .prepare import Prepared, tell

FEW = 8  # examples of the evaluation that checks, before training, which metrics there are


@dataclass(frozen=True)
class Trained:
    """The result of `train`. `evaluation` is None if it was interrupted and can be resumed."""

    folder: Path
    outcome: TrainingResult
    evaluation: Evaluated | None = None
    report: Path | None = None


@dataclass
class Validation:
    """Evaluates on part of the validation split, during training; the first time, says on how much."""

    prepared: Prepared
    console: Console
    reported: bool = False

    def __call__(self, model: Any, step: int) -> dict[str, float]:
        recipe = self.prepared.recipe
        quick = recipe.generation.replace(num_beams=recipe.evaluation.num_beams, num_samples=1)
        limit = _limit(self.prepared, recipe.evaluation.examples, recipe.training.max_steps)
        evaluate = evaluator(self.prepared)
        result = evaluate(model, "validation", limit, quick, samples=0, count=not self.reported)
        if result.limited and not self.reported:
            tell(self.console, f"Evaluations during training take {taken(result.to_dict())} (evaluation.examples).")
        self.reported = True
        return result.metrics


def evaluator(prepared: Prepared) -> Evaluator:
    r = prepared.recipe
    settings = (r.data, prepared.tokenizer, r.batching, r.evaluation, r.generation, r.objective, r.seed, r.task)
    return Evaluator(*settings, prepared.members.ranks, prepared.members.in_parts)


def check_metric(model: AnyModel, prepared: Prepared) -> None:
    """Evaluate on a few examples to check that evaluations give `training.metric`. Raises ValueError, naming the metrics
    that they do give."""
    recipe = prepared.recipe
    quick = recipe.generation.replace(num_beams=1, num_samples=1, min_new_tokens=0, max_new_tokens=1)
    evaluate = replace(evaluator(prepared), batching=recipe.batching.replace(pool=256), ranks=ALONE, together=False)
    training = model.training
    try:
        with rng.preserved():
            metrics = evaluate(model.eval(), "validation", FEW, quick, samples=0, count=False).metrics
    except ValueError:  # so few examples may have nothing to measure; the first evaluation will raise then
        return
    finally:
        model.train(training)
    check_that_it_is_given(recipe.training.metric, metrics)


def finish(
    model: AnyModel,
    outcome: TrainingResult,
    prepared: Prepared,
    out: Path,
    console: Console,
    keep_outputs: bool = False,
) -> Trained:
    """Deliver the adapter, evaluate the final weights on the test split, and write samples, `evaluation.json` and the
    report. After an interruption there is no evaluation."""
    recipe, leads = prepared.recipe, prepared.members.leads
    if recipe.adapter is not None and leads:
        _deliver(model, prepared, out, console)
    if outcome.interrupted:
        return Trained(out, outcome, report=write_report(out) if leads else None)
    most = recipe.evaluation.test_examples
    limit = _limit(prepared, most, outcome.state.step)
    pairs = recipe.task is None and prepared.use in ("translate", "answer")
    result = evaluator(prepared)(model.eval(), "test", limit, score_each=keep_outputs and pairs)
    if not leads:
        return Trained(out, outcome, result)
    result = with_baselines(result, recipe, "test", limit)
    if limit != most and result.limited:
        tell(
            console,
            f"Evaluated on {taken(result.to_dict())} of the test split, because training took only "
            f"{counted(outcome.state.step, 'step')}; evaluate on all with: qkv eval {out} --max-examples all",
        )
    write_json(out / SAMPLES, result.samples)
    if result.extremes is not None:
        write_json(out / EXTREMES, asdict(result.extremes))
    write_json(out / EVALUATION, result.to_dict())
    report = write_report(out)
    drop_old(out)
    return Trained(out, outcome, result, report)


def _limit(prepared: Prepared, limit: int | None, steps: int | None) -> int | None:
    """Lower a limit of examples if outputs are generated for them and the training has few steps."""
    task = prepared.recipe.task
    generates = prepared.use in ("translate", "answer") if task is None else task.kind in ("caption", "see", "omni")
    quick = decoded(steps) if generates else None
    return min((n for n in (limit, quick) if n is not None), default=None)


def _deliver(model: Any, prepared: Prepared, out: Path, console: Console) -> None:
    """Save the adapter by itself, and the model with the adapter merged into its weights."""
    from ...io.directories.adapters import save_adapter, save_merged

    try:
        save_adapter(model, out / ADAPTER, prepared.recipe.model.directory or "", overwrite=True)
    except ValueError as error:
        tell(console, f"The adapter is merged into the model's weights and not saved by itself: {error}.")
    save_merged(model, out / WEIGHTS)
