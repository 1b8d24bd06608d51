"""Prepare a training: read the data, make the tokenizer, choose the settings that are `auto`, check memory."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from ...core.batch import Batch
from ...data.loader.stream import Stream, count, stream
from ...data.source import Example
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories import sentence_transformers
from ...io.directories.layout import TOKENIZER
from ...io.directories.locate import locate
from ...io.directories.run_config import Use, check_fit
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ...training.parallel.team import Team
from ..planning.batch_shape import widest
from ..recipes import continued, continued_generation
from ..recipes.recipe import Recipe
from .admission import check_context, first_examples
from .auto_settings import Chooser
from .batch_preview import first_seen, sizes
from .memory_check import MemoryCheck, plan_of
from .notes import data_summary, of_the_model, of_the_task, small_splits, tuning, unknown_notes
from .pretrained import check_base, check_trainable
from .tokenizer import make

if TYPE_CHECKING:
    from ...data.vectors.word_vectors import Vectors

SAMPLE = 8  # batches that are read to find the largest shape


@dataclass(frozen=True, eq=False)
class Prepared:
    """A training that is ready to begin, and for which nothing has been written.

    full:    rows are as wide as the context, without padding.
    vectors: initial token embeddings.
    sizes:   of the splits, in words.
    notes:   sentences on data and settings, printed when training begins.
    first:   a training batch.
    length:  entries of an epoch, if they had to be counted.
    """

    recipe: Recipe
    tokenizer: Tokenizer | None
    spec: ModelSpec
    use: Use
    members: Team
    full: bool
    vectors: Vectors | None
    sizes: str
    notes: tuple[str, ...]
    first: Batch | None = None
    length: int | None = None

    @property
    def device(self) -> torch.device:
        return self.members.device

    def open(self, position: dict[str, Any] | None) -> Stream:
        """Open the stream of training batches, after a position of an earlier one."""
        recipe = self.recipe
        return stream(
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

    def sample(self) -> tuple[list[Batch], list[str]]:
        """Read some training batches. Returns them and notes on what was skipped. Raises ValueError if everything is."""
        recipe, batching = self.recipe, self.recipe.batching.replace(pool=256, workers=0)
        seq2seq = self.use == "translate"
        with stream(
            recipe.data, self.tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=recipe.seed
        ) as batches:
            sample = [next(batches), *itertools.islice(batches, SAMPLE - 1)]
        report = replace(batches.report, slots=0)
        if report.mostly_skipped:
            return sample, [f"Warning: {data_summary(report, recipe.data.notes())}."]
        return sample, [f"In the first batches: {replace(report, notes=())}."] if report.skipped or report.cut else []

    def largest(self, batches: list[Batch]) -> Batch | None:
        """The largest batch if a task prepares inputs that its objective reads; None if ids and labels are all it needs."""
        return None if self.recipe.task is None else max(batches, key=lambda batch: batch.slots)


def prepare(recipe: Recipe, out: Path, members: Team, resume: bool, console: Console) -> Prepared:
    """Prepare a training. Raises ValueError if data are missing, parts don't fit together, or memory is short."""
    return chosen(read(recipe, out, members, resume, console), console)


def read(recipe: Recipe, out: Path, members: Team, resume: bool, console: Console) -> Prepared:
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
    metric, task, recipe = recipe.training.metric, recipe.task, recipe.resolve_data(tokenizer)
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
        if task is not None and recipe.task is not None:
            notes += continued.notes(task, recipe.task, recipe.model.directory)
        if recipe.task is None:
            notes += continued_generation.notes(recipe.generation, recipe.model.directory, recipe.name)
        notes += sentence_transformers.of_a_tuned_model(locate(recipe.model.directory), getattr(spec, "head", None))
    recipe = recipe.resolve(spec.vocab_size)
    notes += small
    if recipe.task is None and use in ("translate", "answer"):
        notes += [f"Evaluations are {note}." for note in recipe.evaluation.wanted(pairs=True)[1]]
    notes += of_the_task(recipe, example, tokenizer)
    seen = first_seen(example, recipe, tokenizer, use == "translate")
    fields = ", ".join(name for name in example if name not in ("where", "piece"))
    counts = sizes(recipe.data, recipe.seed)
    notes += [f"Data: {counts}; an example has {fields}.", *seen]
    return Prepared(recipe, tokenizer, spec, use, members, full, vectors, counts, tuple(notes))


def chosen(prepared: Prepared, console: Console) -> Prepared:
    """Choose the settings and the layout of ranks that are `auto`, and check that memory is sufficient."""
    tell(console, "Making the first batches …")
    recipe, spec, members = prepared.recipe, prepared.spec, prepared.members
    batches, skipped = prepared.sample()
    notes = [*prepared.notes, *skipped]
    shape, packed = widest(batches, recipe.batching), recipe.batching.packing
    passed = batches[-1].position["passed"]
    epoch = len(batches) / passed if passed else None
    one_shape = prepared.full and not packed
    chooser = Chooser(spec, shape, members.device, one_shape, notes.append, epoch, members.ranks)
    training = members.ranks.broadcast(chooser.resolve(recipe.training))
    recipe = recipe.model_copy(update={"training": training})
    layout: list[str] = []
    if members.ranks.size > 1:
        from ..planning.rank_layout import lay_out

        members, layout = lay_out(members, recipe, spec, shape)
    notes += [chooser.estimate(training), *layout]
    plan = plan_of(
        training,
        spec,
        members.device,
        recipe.objective,
        packed=packed,
        padded=not prepared.full,
        adapter=recipe.adapter,
        weights=recipe.model.stored,
        batch=prepared.largest(batches),
    )
    if members.ranks.size == 1:  # `lay_out` has checked the parts that several ranks have
        MemoryCheck(spec, shape, plan, recipe.batching.tokens).check()
    length = prepared.length
    if training.falls_by_epochs and training.max_steps is None and not batches[0].position["examples"]:
        tell(console, "Counting the examples of an epoch …")
        length = count(recipe.data, recipe.seed)
    return replace(prepared, recipe=recipe, members=members, notes=tuple(notes), first=batches[0], length=length)


def tell(console: Console, text: str) -> None:
    with suppress(OSError):  # if the terminal was closed, training continues
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def use_of(spec: ModelSpec, example: Example) -> Use:
    """The use of a model that was trained on examples like this one."""
    if spec.is_encoder_decoder:
        return "translate"
    if isinstance(spec, Transformer) and spec.decoder is None:
        return "read"
    return "answer" if "source" in example else "continue"
