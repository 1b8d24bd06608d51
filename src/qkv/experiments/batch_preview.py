"""Preview the first training batch: its rows, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..core.batch import IGNORE, Batch
from ..data.holdout import HoldOutSource
from ..data.loader.stream import stream
from ..data.source import SPLITS, TEXTS, Example, Source
from ..directories.layout import TOKENIZER
from ..recipes.recipe import Recipe
from ..tokenizers.tokenizer import Tokenizer
from .evaluate import Fixed
from .tokenizer import make

ROWS = 4
FEW = 100  # validation examples, below which a difference between two evaluations is mostly chance


@dataclass(frozen=True)
class PreviewRow:
    """One row without padding: what the encoder reads (where there is one), what the decoder reads, what it should say.

    Tokens stand beside their ids; a label that is not counted is −100 and has no token.
    """

    source: list[str] | None
    source_ids: list[int] | None
    input: list[str]
    input_ids: list[int]
    label: list[str]
    label_ids: list[int]

    def lines(self) -> list[tuple[str, str]]:
        """(name, tokens beside their ids) of each side; a label that does not count is a dash."""
        first = [] if self.source is None or self.source_ids is None else [("source", self.source, self.source_ids)]
        sides = [*first, ("input", self.input, self.input_ids), ("label", self.label, self.label_ids)]
        return [(name, " ".join(map(_shown, tokens, ids))) for name, tokens, ids in sides]


@dataclass(frozen=True)
class TaskRow:
    """One row as its task shows it: (name, text) of everything that the model is given."""

    said: list[tuple[str, str]]

    def lines(self) -> list[tuple[str, str]]:
        return self.said


@dataclass(frozen=True)
class Preview:
    """The first rows of the first batch, and what the whole batch holds; `counts` of labels are by the terms of the loss."""

    rows: Sequence[PreviewRow | TaskRow]
    batch_rows: int
    tokens: int
    slots: int
    counts: Mapping[str, int]
    vocab_size: int | None

    @property
    def counted(self) -> int:
        """Labels that the head's loss counts."""
        return self.counts.get("loss", 0)

    def __str__(self) -> str:
        fill = f"{self.tokens / self.slots:.0%}" if self.slots else "0%"
        terms = (f"{n:,} {'labels' if name == 'loss' else name}" for name, n in self.counts.items())
        return (
            f"the first {len(self.rows)} of {self.batch_rows} rows in the first batch: {self.tokens:,} tokens in "
            f"{self.slots:,} slots ({fill}), {', '.join(terms)} counted"
            + ("" if self.vocab_size is None else f"; a vocabulary of {self.vocab_size:,}")
        )


def preview(recipe: Recipe, folder: Path | None = None) -> Preview:
    """The first batch of training by a recipe; the tokenizer is that of the run in `folder`, or is made."""
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
    """The first training example as it was read, and as the model sees it, each in a line of `width` characters at most."""
    text = {
        name: example[name] for name in (*TEXTS, "pair", "label", "score", "answer") if example.get(name) is not None
    }
    shown = " → ".join(repr(text[name]) for name in ("source", "target") if name in text)
    shown = shown or ", ".join(f"{name} {value!r}" for name, value in text.items())
    lines = [f"First example: {_short(shown, width)}"] if shown else []
    batching = recipe.batching.replace(workers=0, shuffle=False, over_long="cut")
    source = Fixed(given=(example,))
    with stream(source, tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=recipe.seed, epochs=1) as batches:
        try:
            batch = next(batches)
        except ValueError:  # it is skipped: training goes on with others
            return [*lines, *(f"  it is skipped: {why}" for why in batches.report.skipped)]
    if recipe.task is not None:
        said = [
            (name, line) for name, line in recipe.task.preview(batch, 0, tokenizer) if name
        ]  # pictures have nameless lines
    else:
        said = [] if tokenizer is None else _row(tokenizer, batch, 0).lines()
    return [*lines, *(f"  {name:>10}: {_short(line, width)}" for name, line in said)]


def sizes(source: Source, seed: int = 0) -> str:
    """How many examples each split holds, as far as its table knows without being read."""
    found = {split: source.table(split, seed=seed) for split in SPLITS}
    known = {split: len(table) for split, table in found.items() if not getattr(table, "sequential", False)}
    if isinstance(source, HoldOutSource) and "train" in known:
        known["train"] -= sum(known.get(split, 0) for split in SPLITS[1:] if not source.gives(split))
    said = ", ".join(f"{n:,} for {'training' if split == 'train' else split}" for split, n in known.items())
    if getattr(found["train"], "weight", 1) > 1:
        return f"{said} (pieces of text)"
    few = known.get("validation", FEW) < FEW
    return f"{said}; which weights are the best is partly chance by so few validation examples" if few else said


def _short(text: str, width: int) -> str:
    """One line without control characters, which a terminal would obey."""
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
    """A layout may have one row for all."""
    return valid[i if len(valid) > 1 else 0]


def _shown(token: str, number: int) -> str:
    return "–" if number < 0 else f"{token}·{number}"


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [tokenizer.tokens([token])[0] if token != IGNORE else "" for token in ids]
