"""From a recipe to a run directory: everything is checked before the first file is written, and nothing is lost after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ..core.batch import Batch
from ..data.batching import stream
from ..data.tokenizer import Tokenizer
from ..data.tokenizer import train as train_tokenizer
from ..model.build import build
from ..model.transformer import Transformer
from ..train.loop import fit
from ..train.outcome import Outcome
from ..train.precision import check_device
from . import device as devices
from . import peak
from .directory import EVALUATION, RECIPE, SAMPLES, TOKENIZER, State, clear, write_json
from .evaluate import Evaluated, Evaluator
from .load import check_fit, write_settings
from .recipe import Recipe

# What a resumed run may change: nothing that was used up to the step it goes on from.
CHANGEABLE = (
    "description",
    "evaluation.*",
    "generation.*",
    "batching.workers",
    *(
        f"training.{name}"
        for name in (
            "max_steps max_time eval_every save_every log_every keep metric mode patience min_delta final max_bad_steps "
            "compile tensorboard"
        ).split()
    ),
)


@dataclass(frozen=True)
class Trained:
    """What came of training: `evaluation` and `report` are None where the run was interrupted and waits to go on."""

    folder: Path
    outcome: Outcome
    evaluation: Evaluated | None = None
    report: Path | None = None


def train(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
) -> Trained:
    """Train by a recipe, evaluate on its test split, and leave a run directory.

    resume:    go on with the run in `out` from its last save, bit for bit; from the beginning where there is none yet.
    overwrite: replace the run in `out`. A directory that is no run is never touched.

    Raises ValueError, before anything is written, where recipe, data, device and directory don't fit together.
    """
    console = console or Console(quiet=True)
    where = devices.choose(device)
    if recipe.training.precision != "fp32":
        check_device(recipe.training.precision, where)
    admit(recipe, out, resume, overwrite)
    job = Job.prepare(recipe, out, where, resume, console)
    if overwrite:
        clear(out)
    return job.run(resume)


def admit(recipe: Recipe, out: Path, resume: bool, overwrite: bool) -> None:
    """That the directory may be used as asked. Raises ValueError that says what may be done instead."""
    state = State.of(out)
    if state is State.FOREIGN:
        raise ValueError(f"{out} exists and is no run of qkv, so it is left alone; give another directory with --out")
    if state is State.FREE or overwrite:
        return
    if not resume:
        how = "a finished run" if state is State.FINISHED else "a run that was not finished"
        raise ValueError(f"{out} holds {how}; --resume goes on with it, --overwrite replaces it, --out takes another place")
    saved = Recipe.load(out)
    vocab_size = saved.model.sizes.get("vocab_size")
    given = recipe.resolve(vocab_size) if isinstance(vocab_size, int) else recipe
    different = {path: pair for path, pair in saved.diff(given).items() if not _changeable(path)}
    if different:
        said = "; ".join(f"{path} is {old!r} there and {new!r} here" for path, (old, new) in list(different.items())[:3])
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ValueError(f"{out} is a run of another recipe and can't be resumed with this one: {said}{more}")


def _changeable(path: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in CHANGEABLE)


@dataclass(frozen=True)
class Job:
    """One training, with everything made that can be made without writing a file."""

    recipe: Recipe
    out: Path
    tokenizer: Tokenizer
    spec: Transformer
    device: torch.device
    first: Batch  # of the training data: it shows that there are some
    console: Console

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, device: torch.device, resume: bool, console: Console) -> Job:
        saved = out / TOKENIZER
        if resume and saved.is_file():
            tokenizer = Tokenizer.load(saved)
        else:
            special = tuple(dict.fromkeys([*recipe.tokenizer.special, *recipe.data.special]))
            tokenizer = train_tokenizer(
                recipe.tokenizer.replace({"special": special}), recipe.data.texts("train"), progress=console.is_terminal
            )
        spec = recipe.model.spec(tokenizer.vocab_size)
        check_fit(tokenizer, spec, f"the recipe {recipe.name}")
        _check_context(recipe, spec)
        job = cls(recipe.resolve(spec.vocab_size), out, tokenizer, spec, device, Batch({}), console)
        first = next(job.batches(None), None)
        if first is None:
            raise ValueError("the training data give no batch: they are empty, or every example was skipped")
        return cls(job.recipe, out, tokenizer, spec, device, first, console)

    def batches(self, position: dict[str, Any] | None) -> Iterator[Batch]:
        return stream(
            self.recipe.data,
            self.tokenizer,
            self.recipe.batching,
            seq2seq=self.spec.is_encoder_decoder,
            split="train",
            seed=self.recipe.seed,
            position=position,
        )

    @property
    def evaluator(self) -> Evaluator:
        recipe = self.recipe
        return Evaluator(
            recipe.data, self.tokenizer, recipe.batching, recipe.evaluation, recipe.generation, recipe.objective, recipe.seed
        )

    def run(self, resume: bool) -> Trained:
        recipe = self.recipe
        model = build(self.spec, device=self.device, seed=recipe.seed)
        self._tell(model)
        self._write()
        outcome = fit(
            model,
            self.batches,
            recipe.objective,
            recipe.training,
            out=self.out,
            seed=recipe.seed,
            evaluate=self._measure,
            resume=resume,
            flops_per_token=peak.flops_per_token(self.spec, self.first),
            peak_flops=peak.flops(self.device, recipe.training.precision),
            console=self.console,
        )
        self.console.print(str(outcome), markup=False, highlight=False, soft_wrap=True)
        if outcome.interrupted:
            return Trained(self.out, outcome)
        return self._finish(model, outcome)

    def _measure(self, model: nn.Module, step: int) -> dict[str, float]:
        evaluation = self.recipe.evaluation
        beams = {"num_beams": evaluation.num_beams, "num_samples": 1}
        return self.evaluator(model, "validation", evaluation.examples, self.recipe.generation.replace(beams)).metrics

    def _finish(self, model: nn.Module, outcome: Outcome) -> Trained:
        """Evaluate the delivered weights on the test split and write what the run found."""
        result = self.evaluator(model, "test", self.recipe.evaluation.test_examples)
        write_json(self.out / SAMPLES, result.samples)
        self._log(outcome, result)
        write_json(self.out / EVALUATION, result.to_dict())
        from .report import write_report

        return Trained(self.out, outcome, result, write_report(self.out))
