"""Preview the first training batch: its rows, token by token."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...core.batch import IGNORE, Batch
from ...core.spec import brief, counted
from ...data.holdout import HoldOutSource
from ...data.loader.stream import stream
from ...data.source import SPLITS, TEXTS, Example, Skipped, Source, Split, Table
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.layout import TOKENIZER
from ..evaluate.evaluate import FixedExamples
from ..recipes.recipe import Recipe
from .tokenizer import make

ROWS = 4
READ = 50_000  # rows of text that are read to count those that are skipped
FEW = 100  # with fewer validation examples, a difference between two evaluations is mostly noise


@dataclass(frozen=True)
class PreviewRow:
    """One row without padding: tokens and ids of the encoder's input (None without an encoder), of the decoder's input, and
    of the labels. An ignored label is −100 and its token is empty."""

    source: list[str] | None
    source_ids: list[int] | None
    input: list[str]
    input_ids: list[int]
    label: list[str]
    label_ids: list[int]

    def lines(self) -> list[tuple[str, str]]:
        """(name, tokens with their ids) of each side; an ignored label is a dash."""
        first = [] if self.source is None or self.source_ids is None else [("source", self.source, self.source_ids)]
        sides = [*first, ("input", self.input, self.input_ids), ("label", self.label, self.label_ids)]
        return [(name, " ".join(map(_shown, tokens, ids))) for name, tokens, ids in sides]


@dataclass(frozen=True)
class TaskRow:
    """One row as its task shows it: (name, text) of each input and label."""

    parts: list[tuple[str, str]]

    def lines(self) -> list[tuple[str, str]]:
        return self.parts


@dataclass(frozen=True)
class Preview:
    """The first rows of the first batch, and sizes of the whole batch. `counts` has the number of labels of each term."""

    rows: Sequence[PreviewRow | TaskRow]
    batch_rows: int
    tokens: int
    slots: int
    counts: Mapping[str, int]
    vocab_size: int | None

    @property
    def counted(self) -> int:
        """The number of labels that count toward the loss."""
        return self.counts.get("loss", 0)

    def __str__(self) -> str:
        fill = f"{self.tokens / self.slots:.0%}" if self.slots else "0%"
        terms = (counted(n, "label") if name == "loss" else f"{n:,} {name}" for name, n in self.counts.items())
        return (
            f"the first {len(self.rows)} of {counted(self.batch_rows, 'row')} in the first batch: "
            f"{counted(self.tokens, 'token')} in {counted(self.slots, 'slot')} ({fill}), {', '.join(terms)} counted"
            + ("" if self.vocab_size is None else f"; a vocabulary of {self.vocab_size:,}")
        )


def preview(recipe: Recipe, folder: Path | None = None) -> Preview:
    """Preview the first training batch of a recipe, with the tokenizer of the run in `folder` if it has one."""
    saved = folder / TOKENIZER if folder is not None else None
    tokenizer = Tokenizer.load(saved) if saved is not None and saved.is_file() else make(recipe)
    recipe = recipe.resolve_data(tokenizer)
    size = None if tokenizer is None else tokenizer.vocab_size
    seq2seq, task = recipe.model.spec(size).is_encoder_decoder, recipe.task
    batching = recipe.batching.replace(workers=0)
    with stream(recipe.data, tokenizer, batching, seq2seq=seq2seq, task=task, seed=recipe.seed) as batches:
        batch = next(batches)
    numbers = range(min(ROWS, batch.rows))
    rows: list[PreviewRow | TaskRow] = []
    if task is not None:
        rows += [TaskRow(task.preview(batch, i, tokenizer)) for i in numbers]
    elif tokenizer is not None:
        rows += [_row(tokenizer, batch, i) for i in numbers]
    return Preview(rows, batch.rows, batch.tokens, batch.slots, batch.counts, size)


def first_seen(
    example: Example, recipe: Recipe, tokenizer: Tokenizer | None, seq2seq: bool, width: int = 200
) -> list[str]:
    """Lines of at most `width` characters with the first training example, as read and as the model sees it."""
    text = {
        name: example[name] for name in (*TEXTS, "pair", "label", "score", "answer") if example.get(name) is not None
    }
    shown = " → ".join(repr(text[name]) for name in ("source", "target") if name in text)
    shown = shown or ", ".join(f"{name} {brief(value)}" for name, value in text.items())
    lines = [f"First example: {_short(shown, width)}"] if shown else []
    batching = recipe.batching.replace(workers=0, shuffle=False, over_long="cut")
    source = FixedExamples(entries=(example,))
    with stream(source, tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=recipe.seed, epochs=1) as batches:
        try:
            batch = next(batches)
        except ValueError:  # the example is skipped; training uses the others
            return [*lines, *(f"  skipped: {why}" for why in batches.report.skipped)]
    if recipe.task is not None:  # lines without a name draw pictures
        parts = [(name, line) for name, line in recipe.task.preview(batch, 0, tokenizer) if name]
    else:
        parts = [] if tokenizer is None else _row(tokenizer, batch, 0).lines()
    return [*lines, *(f"  {name:>10}: {_short(line, width)}" for name, line in parts)]


def sizes(source: Source, seed: int = 0) -> str:
    """The number of examples of each split, if the table knows it without reading the data. Up to `READ` rows of text
    are read, so rows that repeat a held-out example are not counted, and skipped rows are counted separately."""
    tables = {split: source.table(split, seed=seed) for split in SPLITS}
    known = {split: len(table) for split, table in tables.items() if not getattr(table, "sequential", False)}
    if isinstance(source, HoldOutSource) and "train" in known:
        known["train"] -= sum(known.get(split, 0) for split in SPLITS[1:] if not source.gives(split))
    weight, skipped = getattr(tables["train"], "weight", 1), dict[Split, int]()
    if weight == 1 and isinstance(source, HoldOutSource) and not _decodes(source):
        for split in [split for split, n in known.items() if n <= READ]:
            known[split], skipped[split] = _read(tables[split])

    def said(split: Split, n: int) -> str:
        bad, name = skipped.get(split, 0), "training" if split == "train" else split
        if skipped and split not in skipped:
            return f"up to {n:,} for {name}"
        return f"{n:,} for {name}" + (f" ({bad:,} skipped)" if bad else "")

    listed = ", ".join(said(split, n) for split, n in known.items())
    if weight > 1:
        return f"{listed} (pieces of text)"
    few = known.get("validation", FEW) < FEW
    return (
        f"{listed}; with so few validation examples, the choice of the best weights is partly chance" if few else listed
    )


def _decodes(source: Source) -> bool:
    """Whether reading an example decodes a file: a picture, a sound, a video or music."""
    first = next(source.examples("train", shuffle=False), {})
    return not first.keys().isdisjoint(("image", "mask", "audio", "video", "frames"))


def _read(table: Table) -> tuple[int, int]:
    """How many examples a table has, and how many of its rows are skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training warns of the same rows
        kinds = Counter(type(table[i]) for i in range(len(table)))
    return kinds.total() - kinds[Skipped] - kinds[type(None)], kinds[Skipped]


def _short(text: str, width: int) -> str:
    """Shorten a text to one line, without control characters, which would act on the terminal."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def _row(tokenizer: Tokenizer, batch: Batch, i: int) -> PreviewRow:
    inputs = batch.inputs
    pairs = "target" in inputs
    own, layout = ("target", "target_layout") if pairs else ("ids", "layout")
    valid = _valid(inputs[layout].valid, i)
    ids = inputs[own][i][valid].tolist()
    assert batch.labels is not None
    labels = batch.labels[i][valid].tolist()
    source = inputs["ids"][i][_valid(inputs["layout"].valid, i)].tolist() if pairs else None
    return PreviewRow(
        None if source is None else _tokens(tokenizer.sources, source),
        source,
        _tokens(tokenizer, ids),
        ids,
        _tokens(tokenizer, labels),
        labels,
    )


def _valid(valid: Tensor, i: int) -> torch.Tensor:
    """The valid tokens of row `i`; a layout may have one row for all."""
    return valid[i if len(valid) > 1 else 0]


def _shown(token: str, number: int) -> str:
    return "–" if number < 0 else f"{token}·{number}"


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [tokenizer.tokens([token])[0] if token != IGNORE else "" for token in ids]
