"""Notes on data and settings that training prints at its start and its end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...core.spec import counted
from ...data.classes import different, joined, spellings
from ...data.source import SPLITS, Counts, Example
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.base import ModelSpec
from ..inference.unknown_words import unknown_words
from ..recipes.recipe import Recipe
from .pretrained import added_template
from .tokenizer import side_of, texts_of

SMALL = 20  # a split with fewer examples than this gets a warning
TEXTS = 1000  # texts of a split that are checked for unknown words and for words with vectors


def data_summary(report: Counts, printed: Sequence[str]) -> str:
    """A summary of the training data that were read, skipped and cut, without the notes that were printed before."""
    report = replace(report, notes=tuple(note for note in report.notes if note not in printed))
    return f"{'Most training examples are skipped' if report.mostly_skipped else 'Training data'}: {report}"


def unknown_notes(recipe: Recipe, tokenizer: Tokenizer | None) -> list[str]:
    """Notes on words of the validation split that the tokenizer doesn't know."""
    if tokenizer is None:
        return []
    sides: list[tuple[Tokenizer, str, Iterator[str]]] = [(tokenizer, "text", texts_of(recipe, "validation"))]
    if recipe.source_tokenizer is not None:
        sides = [(tokenizer.sources, "source", side_of(recipe, "validation", "source"))]
        sides += [(tokenizer, "target", side_of(recipe, "validation", "target"))]
    notes = []
    for reader, name, texts in sides:
        sample = [] if reader.unk_id is None else list(itertools.islice(texts, TEXTS))
        first = "first " if len(sample) == TEXTS else ""
        note = unknown_words(reader, sample, f"in the {first}{counted(len(sample), name)} of the validation split ")
        notes += [] if note is None else [f"{note}."]
    return notes


def tuning(recipe: Recipe, resolved: Recipe) -> str:
    """The note on the learning rate used for fine-tuning."""
    optimizer = resolved.training.optimizer
    chosen = f"{optimizer.kind}'s default for a trained model of this width" if recipe.tunes_by_default else "as given"
    return (
        f"Fine-tuning {resolved.model.directory} with a learning rate of {optimizer.lr:.2g}, {chosen}; "
        "training.optimizer.lr changes it."
    )


def small_splits(recipe: Recipe) -> Iterator[str]:
    """Warnings about splits too small to learn from or to measure on."""
    for split in SPLITS:
        examples = recipe.data.examples(split, seed=recipe.seed, shuffle=False)
        size = sum(1 for _ in itertools.islice(examples, SMALL))
        if size < SMALL:
            effect = "too few to learn from" if split == "train" else "metrics on so few are mostly chance"
            yield f"Warning: the {split} split has {counted(size, 'example')}; {effect}."


def of_the_task(recipe: Recipe, example: Example, tokenizer: Tokenizer | None) -> Iterator[str]:
    """Notes on how examples are read, and on classes that differ only in spelling. Raises ValueError if the validation or
    test split has labels that the training data rule out."""
    task = recipe.task
    if task is None:
        return
    yield from (f"Note: {note}." for note in task.check_labels(recipe.data))
    yield from (f"Note: {note}." for note in task.check_inputs(recipe.data, tokenizer))
    yield from (f"Task: {note}." for note in task.notes(example))
    for group in spellings(getattr(task, "classes", ()) or getattr(task, "tags", ())):
        yield f"Warning: {different(group)}."
    yield from (f"Warning: {note}." for note in joined(getattr(task, "classes", ())))


def of_the_model(recipe: Recipe, spec: ModelSpec) -> Iterator[str]:
    """Notes if rows are as long as a trained model's context, or if its tokenizer gets the recipe's chat template."""
    directory = recipe.model.directory
    longest, name = longest_rows(recipe, spec)
    if directory and longest == spec.max_positions:
        yield f"batching.{name} is {longest}, the full context of {directory}; rows can't be longer."
    if directory and recipe.tokenizer is not None and added_template(directory, recipe.tokenizer) is not None:
        yield f"The tokenizer of {directory} has no chat template; it gets the recipe's (tokenizer.chat_template)."


def longest_rows(recipe: Recipe, spec: ModelSpec) -> tuple[int, str]:
    """The largest length of rows, and the name of its setting in `batching`."""
    if spec.is_encoder_decoder:
        return recipe.batching.max_length, "max_length"
    return recipe.batching.context, "context"
