"""Train by a recipe: check everything, train, evaluate on the test split, and write the run directory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ...core.atomic import beginning, drop_old, make_folder, old, put_back, remove
from ...core.batch import Batch
from ...core.device import choose
from ...core.ranks import ALONE
from ...core.spec import counted
from ...data.loader.stream import Stream, count, stream
from ...data.source import Example
from ...data.tokenizers.tokenizer import Tokenizer
from ...data.vectors.word_vectors import Vectors
from ...io.directories import sentence_transformers
from ...io.directories.adapters import save_adapter, save_merged
from ...io.directories.build import build, outline
from ...io.directories.layout import (
    ADAPTER,
    EVALUATION,
    EXTREMES,
    RECIPE,
    SAMPLES,
    TOKENIZER,
    WEIGHTS,
    RunState,
    clear,
    is_stub,
    tidy,
    write_json,
    write_text,
)
from ...io.directories.locate import locate
from ...io.directories.lock import locked
from ...io.directories.run_config import Use, check_fit, write_settings
from ...look.formatting import taken
from ...nn.cost.throughput import flops_per_token, peak_flops
from ...nn.layers.lora import adapt
from ...nn.models.base import ModelSpec
from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.initialization import Draws
from ...nn.models.replace import Replaced
from ...nn.models.transformer import Transformer
from ...training.checkpoints import rng
from ...training.logging.metrics_file import Callback
from ...training.logging.progress_bar import span
from ...training.loop import check_metric, fit
from ...training.mixed_precision import DTYPES
from ...training.parallel.team import Team, team
from ...training.result import TrainingResult
from ...training.strategy import Strategy
from ..evaluate.evaluate import Evaluated, Evaluator, with_baselines
from ..planning.batch_shape import widest
from ..planning.rank_layout import lay_out
from ..recipes.evaluation import decoded
from ..recipes.recipe import Recipe
from ..recipes.vectors import load_vectors
from ..report.report import write_report
from ..report.start import START, note_start, note_threads
from .admission import admit, check_context, check_machine, first_examples
from .auto_settings import Chooser
from .batch_preview import first_seen, sizes
from .fingerprint import fingerprint
from .memory_check import MemoryCheck, plan_of
from .notes import TEXTS, data_summary, of_the_model, of_the_task, small_splits, tuning, unknown_notes
from .pretrained import check_base, check_trainable, keep_base, model_of, note_of_untrained_tables
from .tokenizer import make

FEW = 8  # examples of the evaluation that checks, before training, which metrics there are
SAMPLE = 8  # batches that are read to find the largest shape


@dataclass(frozen=True)
class Trained:
    """The result of `train`. `evaluation` is None if it was interrupted and can be resumed."""

    folder: Path
    outcome: TrainingResult
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
    callbacks: Sequence[Callback] = (),
    command: str | None = None,
    keep_outputs: bool = False,
) -> Trained:
    """Train by a recipe, evaluate on its test split, and write the run directory `out`.

    resume:    continue the run in `out` from its last save, bit for bit; start from the beginning if there is none.
    overwrite: replace the run in `out`, which is kept beside as `.old-NAME` until the new one is finished. A directory that
               holds anything but a run is never touched.
    callbacks: called with every record of `metrics.jsonl`.
    command:   the command line that trains this, for the report.
    keep_outputs: return all outputs for pairs of the test split in `evaluation.outputs`.

    Raises ValueError, before anything is written, if recipe, data, device and directory don't fit together, or if the
    machine has too little memory.
    """
    console = console or Console(quiet=True)
    where = choose(device)
    admit(recipe, out, resume, overwrite)  # before locking, which would write into a directory that is not a run
    with team(recipe.scale, where) as members, locked(out) if members.leads else nullcontext() as extend_lock:
        console = console if members.leads else Console(quiet=True)
        recipe = members.together(lambda: admit(recipe, out, resume, overwrite))
        members.compare({**recipe.to_dict(), "--resume": resume, "--overwrite": overwrite, "--out": str(out)})
        fresh = overwrite or RunState.of(out) is RunState.FREE
        if members.leads:
            tidy(out)
        members.together(partial(check_machine, recipe.training, recipe.batching, members.device))
        job, first = members.together(lambda: Job.ready(recipe, out, members, resume, console))
        job.keep_outputs, job.extend_lock = keep_outputs, extend_lock
        try:
            return job.train(resume, first, overwrite, callbacks, command)
        except Exception:
            if members.leads and fresh and is_stub(out) and RunState.of(out) is RunState.STARTED:
                clear(out)  # training never began: leave nothing behind
                put_back(out)
            raise


@dataclass
class Job:
    """A training job, prepared as far as possible without writing a file."""

    recipe: Recipe
    out: Path
    tokenizer: Tokenizer | None
    spec: Any
    use: Use
    members: Team
    console: Console
    full: bool  # rows are as wide as the context, without padding
    vectors: Vectors | None = None  # initial token embeddings
    opened: Stream | None = None  # the training batches, for their report at the end
    length: int | None = None  # entries of an epoch, if they had to be counted
    notes: list[str] = field(default_factory=list)  # sentences on data and settings, printed when training begins
    sizes: str = ""  # of the splits, in words
    measured: bool = False  # whether an evaluation on the validation split has been reported
    keep_outputs: bool = False  # return the outputs of the test split, if these are pairs
    extend_lock: Callable[[Path], None] | None = None  # of the directory, on one that will replace it

    @property
    def device(self) -> torch.device:
        return self.members.device

    @classmethod
    def ready(cls, recipe: Recipe, out: Path, members: Team, resume: bool, console: Console) -> tuple[Job, Batch]:
        """Prepare a job, choose the settings that are `auto`, and check memory. Returns it with a training batch."""
        job = cls.prepare(recipe, out, members, resume, console)
        return job, job.check_memory()

    @classmethod
    def prepare(cls, recipe: Recipe, out: Path, members: Team, resume: bool, console: Console) -> Job:
        """Read the data and make the tokenizer. Raises ValueError if data are missing or parts don't fit together."""
        check_context(recipe, recipe.spec())  # first, because the rest takes time
        check_trainable(recipe.model, recipe.adapter is not None, members.ranks.size)
        tell(console, "Reading the data …")
        example = first_examples(recipe)["train"]
        small = list(small_splits(recipe))
        saved = out / TOKENIZER
        if resume and recipe.adapter is not None and recipe.model.directory:
            check_base(out, recipe.model.directory)
        kept = resume and saved.is_file()
        if recipe.tokenizer is not None and not recipe.model.directory and not kept:
            tell(console, "Making the tokenizer …")
        tokenizer = Tokenizer.load(saved) if kept else make(recipe, console.is_terminal)
        metric, recipe = recipe.training.metric, recipe.resolve_data(tokenizer)
        spec = recipe.model.spec(None if tokenizer is None else tokenizer.vocab_size)
        if tokenizer is not None:
            check_fit(tokenizer, spec, f"the recipe {recipe.name}")
        use = use_of(spec, example)
        full = use == "continue" and "messages" not in example and recipe.task is None
        vectors = None if recipe.vectors is None else recipe.vectors.read(spec, tokenizer)
        notes = unknown_notes(recipe, tokenizer)
        if recipe.training.metric != metric:
            notes.append(f"training.metric is {recipe.training.metric}, because these data don't give {metric}.")
        notes += [tuning(recipe, recipe.resolve(spec.vocab_size))] if recipe.model.directory else []
        notes += [] if tokenizer is None else of_the_model(recipe, spec)
        if recipe.model.directory:
            notes += sentence_transformers.of_a_tuned_model(locate(recipe.model.directory), getattr(spec, "head", None))
        recipe = recipe.resolve(spec.vocab_size)
        notes += small
        notes += of_the_task(recipe, example)
        seen = first_seen(example, recipe, tokenizer, use == "translate")
        fields = ", ".join(name for name in example if name not in ("where", "piece"))
        counts = sizes(recipe.data, recipe.seed)
        notes += [f"Data: {counts}; an example has {fields}.", *seen]
        return cls(recipe, out, tokenizer, spec, use, members, console, full, vectors, notes=notes, sizes=counts)

    def open(self, position: dict[str, Any] | None) -> Stream:
        """Open the stream of training batches, after a position of an earlier one."""
        recipe = self.recipe
        self.opened = stream(
            recipe.data,
            self.tokenizer,
            recipe.batching,
            seq2seq=self.use == "translate",
            task=recipe.task,
            seed=recipe.seed,
            position=position,
            epochs=recipe.training.max_epochs,
            length=self.length,
            shard=self.members.shard,
        )
        return self.opened

    def sample(self) -> list[Batch]:
        """Read some training batches. Raises ValueError if every example is skipped."""
        recipe, batching = self.recipe, self.recipe.batching.replace(pool=256, workers=0)
        seq2seq = self.use == "translate"
        with stream(
            recipe.data, self.tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=recipe.seed
        ) as batches:
            sample = [next(batches), *itertools.islice(batches, SAMPLE - 1)]
        report = replace(batches.report, slots=0)
        if report.mostly_skipped:
            self.notes.append(f"Warning: {data_summary(report, recipe.data.notes())}.")
        elif report.skipped or report.cut:
            self.notes.append(f"In the first batches: {replace(report, notes=())}.")
        return sample

    def largest(self, batches: list[Batch]) -> Batch | None:
        """The largest batch if a task prepares inputs that its objective reads; None if ids and labels are all it needs."""
        return None if self.recipe.task is None else max(batches, key=lambda batch: batch.slots)

    def check_memory(self) -> Batch:
        """Choose the settings that are `auto` and check that memory is sufficient. Returns a training batch."""
        tell(self.console, "Making the first batches …")
        recipe, batches = self.recipe, self.sample()
        shape, packed = widest(batches, recipe.batching), recipe.batching.packing
        passed = batches[-1].position["passed"]
        epoch = len(batches) / passed if passed else None
        one_shape, ranks = self.full and not packed, self.members.ranks
        chooser = Chooser(self.spec, shape, self.device, one_shape, self.notes.append, epoch, ranks)
        training = ranks.broadcast(chooser.resolve(recipe.training))
        self.recipe = recipe.model_copy(update={"training": training})
        self.members, layout = lay_out(self.members, self.recipe, self.spec, shape)
        self.notes += [chooser.estimate(training), *layout]
        plan = plan_of(
            training,
            self.spec,
            self.device,
            recipe.objective,
            packed=packed,
            padded=not self.full,
            adapter=recipe.adapter,
            weights=recipe.model.stored,
            batch=self.largest(batches),
        )
        if self.members.ranks.size == 1:  # `lay_out` has checked the parts that several ranks have
            MemoryCheck(self.spec, shape, plan, recipe.batching.tokens).check()
        if training.falls_by_epochs and training.max_steps is None and not batches[0].position["examples"]:
            self._say("Counting the examples of an epoch …")
            self.length = count(recipe.data, recipe.seed)
        return batches[0]

    def train(
        self,
        resume: bool,
        first: Batch,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
        command: str | None = None,
    ) -> Trained:
        """Train, evaluate, and write the files of the run."""
        recipe = self.recipe
        model, draws = self._model()
        if draws is None:
            self._check_metric(model)
        strategies: list[Strategy] = []
        precision = recipe.training.precision
        assert precision != "auto", "`check_memory` has chosen it"

        def distribute(model: nn.Module) -> Strategy:
            strategies.append(self.members.distribute(model, draws))
            return strategies[0]

        def begin() -> None:
            if draws is not None:
                strategies[0].gather()
                self._check_metric(model)
                strategies[0].scatter()
            if self.members.leads:
                write_first_files()
            self.members.ranks.barrier()

        def write_first_files() -> None:
            if overwrite and RunState.of(self.out) is not RunState.FREE:
                resumed = False
                with beginning(self.out) as new:
                    if self.extend_lock is not None:
                        self.extend_lock(new)
                    self.write(new)
                    note_start(new, self.sizes, self.device, command)
                self._say(f"The run that was in {self.out} is kept in {old(self.out)} until this one is finished.")
            else:
                remove(self.out / EVALUATION)  # a run is finished when it has this file
                resumed = resume and (self.out / RECIPE).is_file()
                self.write(self.out)
                if not (resumed and (self.out / START).is_file()):  # a kill may have come between
                    note_start(self.out, self.sizes, self.device, command)
            self._tell(resumed)

        outcome = fit(
            model,
            self.open,
            recipe.objective,
            recipe.training,
            out=self.out,
            seed=recipe.seed,
            evaluate=self._measure,
            resume=resume,
            begin=begin,
            fingerprint=fingerprint(recipe.data, self.tokenizer, recipe.seed),
            ranks=self.members.ranks,
            distribute=distribute,
            flops_per_token=flops_per_token(self.spec, first),
            peak_flops=(peak_flops(self.device, DTYPES[precision]) or 0) * self.members.ranks.size or None,
            console=self.console,
            callbacks=[*callbacks, partial(note_threads, self.out)],
        )
        self._say(f"{str(outcome)[0].upper()}{str(outcome)[1:]}.")
        if self.opened is not None and (self.opened.report.skipped or self.opened.report.cut):
            self._say(f"{data_summary(self.opened.report, self.recipe.data.notes())}.")
        if recipe.adapter is not None and self.members.leads:
            self._deliver(model)
        if outcome.interrupted:
            return Trained(self.out, outcome, report=write_report(self.out) if self.members.leads else None)
        return self._finish(model, outcome)

    def _model(self) -> tuple[Any, Draws | None]:
        """Build or load the model, with its initial weights and its adapter. If ranks divide a new one, make its outline and
        the draws of its weights."""
        recipe, loaded = self.recipe, self.recipe.model.directory
        model: Any
        if not loaded and recipe.vectors is None and recipe.adapter is None and self.members.divides:
            return outline(self.spec, device=self.device, seed=recipe.seed)
        if loaded:
            replaced = model_of(recipe.model, self.spec.vocab_size, self.device, recipe.seed)
            model = replaced.model
            if replaced.new:
                self._say(f"From {loaded}: {_listed(replaced)}.")
        else:
            model = build(self.spec, device=self.device, seed=recipe.seed)
        self._begin_with_vectors(model)
        if recipe.adapter is None:
            return model, None
        adapted = adapt(model, recipe.adapter, seed=recipe.seed)
        if loaded and (note := note_of_untrained_tables(adapted, self.spec.vocab_size, loaded)):
            self._say(note)
        return adapted, None

    def _begin_with_vectors(self, model: nn.Module) -> None:
        choice = self.recipe.vectors
        if choice is None or self.vectors is None or self.tokenizer is None:
            return
        texts = list(itertools.islice(self.recipe.data.texts("train"), TEXTS))
        coverage = load_vectors(model, self.tokenizer, self.vectors, choice.frozen, texts)
        self.notes += [f"{choice.path}: {note}." for note in self.vectors.notes]
        self.notes.append(f"Vectors: {coverage}, counted in {counted(len(texts), 'training text')}.")

    def _deliver(self, model: Any) -> None:
        """Save the adapter by itself, and the model with the adapter merged into its weights."""
        try:
            save_adapter(model, self.out / ADAPTER, self.recipe.model.directory or "", overwrite=True)
        except ValueError as error:
            self._say(f"The adapter is merged into the model's weights and not saved by itself: {error}.")
        save_merged(model, self.out / WEIGHTS)

    def write(self, out: Path) -> None:
        """Write the first files of the run; the recipe first, because it marks the directory as a run."""
        make_folder(out)
        write_text(out / RECIPE, self.recipe.to_yaml())
        if self.recipe.adapter is not None and self.recipe.model.directory:
            keep_base(out, self.recipe.model.directory)
        if self.tokenizer is not None:
            self.tokenizer.save(out / TOKENIZER)
        if self.recipe.model.directory and isinstance(getattr(self.spec, "head", None), SentenceVector):
            sentence_transformers.keep(locate(self.recipe.model.directory), out)
        write_settings(out, self.spec, self.use, self.recipe.generation, None, self.tokenizer is not None)

    @property
    def evaluator(self) -> Evaluator:
        r = self.recipe
        settings = (r.data, self.tokenizer, r.batching, r.evaluation, r.generation, r.objective, r.seed, r.task)
        return Evaluator(*settings, self.members.ranks)

    def _measure(self, model: Any, step: int) -> dict[str, float]:
        """Evaluate on part of the validation split, during training."""
        evaluation = self.recipe.evaluation
        quick = self.recipe.generation.replace(num_beams=evaluation.num_beams, num_samples=1)
        limit = self._limit(evaluation.examples, self.recipe.training.max_steps)
        result = self.evaluator(model, "validation", limit, quick, samples=0, count=not self.measured)
        if result.limited and not self.measured:
            self._say(f"Evaluations during training take {taken(result.to_dict())} (evaluation.examples).")
        self.measured = True
        return result.metrics

    def _limit(self, limit: int | None, steps: int | None) -> int | None:
        """Lower a limit of examples if outputs are generated for them and the training has few steps."""
        task = self.recipe.task
        generates = self.use in ("translate", "answer") if task is None else task.kind == "caption"
        quick = decoded(steps) if generates else None
        return min((n for n in (limit, quick) if n is not None), default=None)

    def _check_metric(self, model: Any) -> None:
        """Evaluate on a few examples to check that evaluations give `training.metric`. Raises ValueError, naming the metrics
        that they do give."""
        quick = self.recipe.generation.replace(num_beams=1, num_samples=1, max_new_tokens=1)
        evaluator = replace(self.evaluator, batching=self.recipe.batching.replace(pool=256), ranks=ALONE)
        training = model.training
        try:
            with rng.preserved():
                metrics = evaluator(model.eval(), "validation", FEW, quick, samples=0, count=False).metrics
        except ValueError:  # so few examples may have nothing to measure; the first evaluation will raise then
            return
        finally:
            model.train(training)
        check_metric(self.recipe.training.metric, metrics)

    def _finish(self, model: Any, outcome: TrainingResult) -> Trained:
        """Evaluate the final weights on the test split, and write samples, `evaluation.json` and the report."""
        most = self.recipe.evaluation.test_examples
        limit = self._limit(most, outcome.state.step)
        pairs = self.recipe.task is None and self.use in ("translate", "answer")
        result = self.evaluator(model.eval(), "test", limit, score_each=self.keep_outputs and pairs)
        if not self.members.leads:
            return Trained(self.out, outcome, result)
        result = with_baselines(result, self.recipe, "test", limit)
        if limit != most and result.limited:
            self._say(
                f"Evaluated on {taken(result.to_dict())} of the test split, because training took only "
                f"{counted(outcome.state.step, 'step')}; evaluate on all with: qkv eval {self.out} --max-examples all"
            )
        write_json(self.out / SAMPLES, result.samples)
        if result.extremes is not None:
            write_json(self.out / EXTREMES, asdict(result.extremes))
        write_json(self.out / EVALUATION, result.to_dict())
        report = write_report(self.out)
        drop_old(self.out)
        return Trained(self.out, outcome, result, report)

    def _tell(self, resumed: bool) -> None:
        """Describe the training. On resume, leave out the notes on data and settings, which were printed at its start."""
        sizes = f"{self.spec.n_parameters:,} parameters"
        if self.tokenizer is not None:
            sizes += f", {self.tokenizer.vocab_size:,} tokens in the vocabulary"
            if self.recipe.source_tokenizer is not None:
                sizes += f" of targets and {self.tokenizer.sources.vocab_size:,} in the vocabulary of sources"
        self._say(f"Training {self.recipe.name} on {self.device}: {sizes}, run in {self.out}.")
        if self.recipe.training.max_time is not None:
            self._say(f"Training stops after {span(self.recipe.training.max_time)} at the latest.")
        if resumed:
            return
        for note in self.notes:
            self._say(note)
        for note in self.recipe.data.notes():
            self._say(f"Data: {note}.")

    def _say(self, text: str) -> None:
        tell(self.console, text)


def tell(console: Console, text: str) -> None:
    with suppress(OSError):  # if the terminal was closed, training goes on
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _listed(replaced: Replaced[Any]) -> str:
    """The numbers of tensors that were kept and left out of a trained model, and the names of new ones."""
    names = ", ".join(replaced.new[:6]) + (f" and {len(replaced.new) - 6} more" if len(replaced.new) > 6 else "")
    return f"{counted(len(replaced.kept), 'tensor')} kept, {len(replaced.gone)} left out; new: {names}"


def use_of(spec: ModelSpec, example: Example) -> Use:
    """The use of a model that was trained on examples like this one."""
    if spec.is_encoder_decoder:
        return "translate"
    if isinstance(spec, Transformer) and spec.decoder is None:
        return "read"
    return "answer" if "source" in example else "continue"
