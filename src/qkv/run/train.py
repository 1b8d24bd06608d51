"""From a recipe to a run directory: everything is checked before the first file is written, and nothing is lost after."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ..core.batch import Batch
from ..data.batching import Stream, stream
from ..data.sources import SPLITS, Example, Split
from ..data.tokenizer import Tokenizer
from ..model.transformer import Transformer, TransformerModel
from ..train.loop import fit
from ..train.outcome import Outcome
from ..train.precision import check_device
from .build import build
from .device import choose, flops_per_token, peak_flops
from .directory import EVALUATION, RECIPE, SAMPLES, TOKENIZER, State, clear, write_json, write_text
from .evaluate import Evaluated, Evaluator
from .load import check_fit, write_settings
from .recipe import Recipe
from .text import Task
from .tokenizer import make

# What a resumed run may change: nothing that was used up to the step it goes on from.
CHANGEABLE = ("description", "evaluation.*", "generation.*", "batching.workers")
CHANGEABLE_TRAINING = frozenset(
    {
        *("max_steps", "max_time", "patience", "min_delta", "max_bad_steps"),
        *("eval_every", "save_every", "log_every", "keep", "metric", "mode", "final"),
        *("compile", "recompute", "tensorboard"),
    }
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
    where = choose(device)
    if recipe.training.precision != "fp32":
        check_device(recipe.training.precision, where)
    admit(recipe, out, resume, overwrite)
    job = Job.prepare(recipe, out, where, resume, console)
    first = job.first()
    if overwrite and State.of(out) is not State.FREE:
        clear(out)
    (out / EVALUATION).unlink(missing_ok=True)  # until it is made anew, the run is not finished
    job.write()
    return job.run(resume, first)


def admit(recipe: Recipe, out: Path, resume: bool, overwrite: bool) -> None:
    """That the directory may be used as asked. Raises ValueError that says what may be done instead."""
    state = State.of(out)
    if state is State.FOREIGN:
        raise ValueError(f"{out} exists and is no run of qkv, so it is left alone; give another directory with --out")
    if state is State.FREE or overwrite:
        return
    if not resume:
        how = "a finished run" if state is State.FINISHED else "a run that was not finished"
        raise ValueError(
            f"{out} holds {how}; --resume goes on with it, --overwrite replaces it, --out takes another place"
        )
    saved = Recipe.load(out)
    vocab_size = saved.model.sizes.get("vocab_size")
    given = recipe.resolve(vocab_size) if isinstance(vocab_size, int) else recipe
    different = {path: pair for path, pair in saved.diff(given).items() if not _changeable(path)}
    if different:
        said = "; ".join(
            f"{path} is {old!r} there and {new!r} here" for path, (old, new) in list(different.items())[:3]
        )
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise ValueError(
            f"{out} is a run of another recipe and can't be resumed with this one: {said}{more}; "
            f"`qkv train {out} --resume` goes on with its own"
        )


def _changeable(path: str) -> bool:
    room, _, name = path.partition(".")
    if room == "training" and name in CHANGEABLE_TRAINING:
        return True
    return any(fnmatch(path, pattern) for pattern in CHANGEABLE)


@dataclass
class Job:
    """One training, with everything made that can be made without writing a file."""

    recipe: Recipe
    out: Path
    tokenizer: Tokenizer
    spec: Transformer
    task: Task
    device: torch.device
    console: Console
    opened: Stream | None = None  # the training data, for their report at the end

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, device: torch.device, resume: bool, console: Console) -> Job:
        """Raises ValueError where the data are missing or the parts don't fit together."""
        check_context(recipe, recipe.model.spec(recipe.vocab_size))  # told before anything takes time
        example = first_examples(recipe)["train"]
        saved = out / TOKENIZER
        tokenizer = Tokenizer.load(saved) if resume and saved.is_file() else make(recipe, console.is_terminal)
        spec = recipe.model.spec(tokenizer.vocab_size)
        check_fit(tokenizer, spec, f"the recipe {recipe.name}")
        pairs = "source" in example
        task: Task = "translate" if spec.is_encoder_decoder else "answer" if pairs else "continue"
        return cls(recipe.resolve(spec.vocab_size), out, tokenizer, spec, task, device, console)

    def open(self, position: dict[str, Any] | None) -> Stream:
        """The batches of training after a position."""
        recipe = self.recipe
        self.opened = stream(
            recipe.data,
            self.tokenizer,
            recipe.batching,
            seq2seq=self.task == "translate",
            seed=recipe.seed,
            position=position,
        )
        return self.opened

    def first(self) -> Batch:
        """A batch of training data. Raises ValueError where no example is left to use."""
        recipe, batching = self.recipe, self.recipe.batching.replace(pool=256, workers=0)
        with stream(
            recipe.data, self.tokenizer, batching, seq2seq=self.task == "translate", seed=recipe.seed
        ) as batches:
            return next(batches)

    def run(self, resume: bool, first: Batch) -> Trained:
        recipe = self.recipe
        model = build(self.spec, device=self.device, seed=recipe.seed)
        self._tell()
        outcome = fit(
            model,
            self.open,
            recipe.objective,
            recipe.training,
            out=self.out,
            seed=recipe.seed,
            evaluate=self._measure,
            resume=resume,
            flops_per_token=flops_per_token(self.spec, first),
            peak_flops=peak_flops(self.device, recipe.training.precision),
            console=self.console,
        )
        self._say(f"{str(outcome)[0].upper()}{str(outcome)[1:]}.")
        if self.opened is not None and (self.opened.report.skipped or self.opened.report.cut):
            self._say(f"Training data: {self.opened.report}.")
        return Trained(self.out, outcome) if outcome.interrupted else self._finish(model, outcome)

    def write(self) -> None:
        """The files that a run begins with, the recipe first: by it a directory is known as a run."""
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(self.out / RECIPE, self.recipe.to_yaml())
        self.tokenizer.save(self.out / TOKENIZER)
        write_settings(self.out, self.spec, self.task, self.recipe.generation, None)

    @property
    def evaluator(self) -> Evaluator:
        r = self.recipe
        return Evaluator(r.data, self.tokenizer, r.batching, r.evaluation, r.generation, r.objective, r.seed)

    def _measure(self, model: nn.Module, step: int) -> dict[str, float]:
        """What `fit` asks for now and then: quick, on some of the validation split."""
        evaluation = self.recipe.evaluation
        quick = self.recipe.generation.replace(num_beams=evaluation.num_beams, num_samples=1)
        assert isinstance(model, TransformerModel)
        return self.evaluator(model, "validation", evaluation.examples, quick, samples=0).metrics

    def _finish(self, model: TransformerModel, outcome: Outcome) -> Trained:
        """Evaluate the delivered weights on the test split and write down what was found, `evaluation.json` and the page."""
        from .report import write_report

        result = self.evaluator(model.eval(), "test", self.recipe.evaluation.test_examples)
        write_json(self.out / SAMPLES, result.samples)
        write_json(self.out / EVALUATION, result.to_dict())
        return Trained(self.out, outcome, result, write_report(self.out))

    def _tell(self) -> None:
        sizes = f"{self.spec.n_parameters:,} parameters, {self.tokenizer.vocab_size:,} tokens in the vocabulary"
        self._say(f"Training {self.recipe.name} on {self.device}: {sizes}, run in {self.out}.")
        for note in self.recipe.data.notes():
            self._say(f"Data: {note}.")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def first_examples(recipe: Recipe) -> dict[Split, Example]:
    """One example of every split. Raises ValueError where a split can't be read or holds none."""
    found: dict[Split, Example] = {}
    for split in SPLITS:
        example = next(recipe.data.examples(split, seed=recipe.seed, shuffle=False), None)
        if example is None:
            raise ValueError(f"the {split} split of the data holds no example")
        found[split] = example
    return found


def check_context(recipe: Recipe, spec: Transformer) -> None:
    """That no batch has rows longer than the model's context."""
    longest, name = recipe.batching.context, "context"
    if spec.is_encoder_decoder:
        longest, name = recipe.batching.max_length, "max_length"
    if spec.max_positions is not None and longest > spec.max_positions:
        raise ValueError(
            f"batching.{name} is {longest}, longer than the model's context of {spec.max_positions} positions; "
            f"lower it or raise model.max_positions"
        )
