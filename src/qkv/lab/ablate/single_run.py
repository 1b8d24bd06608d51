"""Train one run of an ablation, in this process or another, and read back what it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from ...core import yamls
from ...io.directories.layout import EVALUATION, METRICS, RunState, read_json, write_json
from ...look.training_history import History
from ...runs.compare.measures import Curve, Measure
from ...runs.evaluate.evaluate import evaluate_run
from ...runs.inference.run import load
from ...runs.recipes.recipe import Recipe
from ...runs.train.train import train
from ...training.logging.metrics_file import read_metrics
from ...training.result import Diverged

RESULT = "ablation.json"  # in a run's directory: what the ablation measured of it

Status = Literal["finished", "diverged"]


@dataclass(frozen=True)
class RunResult:
    """What an ablation keeps of one run.

    metrics:    of the test split; none if it diverged.
    steps, tokens, seconds: of the training, evaluations included in the seconds.
    speed:      median tokens per second of a training step.
    validation: by metric, its points (step, value) during training.
    curve:      of the ablation's measure.
    outputs, references: for pairs of the test split.
    message:    why it diverged.
    """

    status: Status
    metrics: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    speed: float | None = None
    validation: dict[str, Curve] = field(default_factory=dict)
    curve: Curve = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    references: list[list[str]] = field(default_factory=list)
    message: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result of a run that is done; None if it is not. Raises ValueError if its file is damaged."""
        if not (folder / RESULT).is_file():
            return None
        try:
            return cls(**read_json(folder / RESULT))
        except TypeError:
            raise ValueError(f"{folder / RESULT} is damaged; remove it, and continue with --resume") from None


@dataclass(frozen=True)
class StudyRun:
    """One run to train. `recipe` is its tree in YAML, so it can be sent to another process."""

    recipe: str
    folder: Path
    device: str
    measure: dict[str, Any] | None = None


def train_run(job: StudyRun) -> RunResult | None:
    """Train a run, continuing it if it has begun, and write its result; None if it was interrupted.

    Raises ValueError if it can't be trained; a divergence is a result.
    """
    recipe = Recipe.from_tree(yamls.load(job.recipe, "the recipe of a run"))
    outputs: Sequence[Mapping[str, Any]] | None = None
    if RunState.of(job.folder) is not RunState.FINISHED:
        try:
            trained = train(recipe, job.folder, resume=True, device=job.device, keep_outputs=True)
        except Diverged as error:
            job.folder.mkdir(parents=True, exist_ok=True)  # `train` removes it if no step was recorded
            result = RunResult("diverged", message=str(error), **_progress(job.folder))
            write_json(job.folder / RESULT, asdict(result))
            return result
        if trained.evaluation is None:
            return None
        outputs = trained.evaluation.outputs
    result = _finished(job, recipe, outputs)
    write_json(job.folder / RESULT, asdict(result))
    return result


def _finished(job: StudyRun, recipe: Recipe, outputs: Sequence[Mapping[str, Any]] | None) -> RunResult:
    """The result of a finished run. `outputs` are its evaluation's; None if they were lost and are made again."""
    run = None
    if outputs is None and recipe.task is None and _has_pairs(recipe):
        run = load(job.folder, device=job.device)
        outputs = evaluate_run(run, score_each=True).outputs
    curve: Curve = []
    if job.measure is not None:
        run = run or load(job.folder, device=job.device)
        curve = Measure.from_dict(job.measure)(run)
    metrics = {
        name: float(value) for name, value in read_json(job.folder / EVALUATION)["metrics"].items() if value is not None
    }
    return RunResult(
        "finished",
        metrics=metrics,
        curve=curve,
        outputs=[row["hypothesis"] for row in outputs or ()],
        references=[row["references"] for row in outputs or ()],
        **_progress(job.folder),
    )


def _has_pairs(recipe: Recipe) -> bool:
    return "source" in next(iter(recipe.data.examples("test", shuffle=False)), {})


def _progress(folder: Path) -> dict[str, Any]:
    """Steps, tokens, seconds, speed and the validation's metrics, from `metrics.jsonl`."""
    history = History.of(read_metrics(folder / METRICS)) if (folder / METRICS).is_file() else History()
    steps = [step for step, _ in history.series("train", "elapsed")]
    return {
        "steps": int(max(steps, default=0)),
        "tokens": history.last("train", "tokens") or 0.0,
        "seconds": max((history.last(table, "elapsed") or 0.0 for table in ("train", "eval")), default=0.0),
        "speed": history.median("train", "tokens_per_s"),
        "validation": {
            key: history.series("eval", key) for key in history.keys("eval") if key not in ("elapsed", "type")
        },
    }
