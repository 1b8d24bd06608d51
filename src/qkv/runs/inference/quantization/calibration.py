"""Calibration data of quantization: batches of a split of the run's data, or rows of given texts or a text file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ....core.batch import Batch
from ....core.json_files import read_text
from ....core.layout import Layout
from ....data.source import SPLITS
from ....training.objective import terms_of
from ..held_out import batches, recipe_of
from ..loaded import LoadedModel

ROW = 512  # tokens of a row of text, if the model's context is not shorter
TOKENS = 4096  # of a batch of such rows

Data = str | Path | Sequence[str]
"""A split of the run's data ("train"), the path of a text file, or texts."""


def calibration(run: LoadedModel, data: Data, examples: int) -> tuple[list[Batch], Callable[[nn.Module, Batch], Any]]:
    """Return batches of calibration data, with at least `examples` examples or rows if there are so many, and the function
    that makes a pass over one. Raises ValueError for data that are empty, or that the run does not read."""
    if isinstance(data, str) and data in SPLITS:
        recipe = recipe_of(run)
        read = batches(run, data, examples)

        def loss(model: nn.Module, batch: Batch) -> Any:
            return terms_of(recipe.objective, model, batch)

        return read, loss
    found = batched(text_rows(run, data)[:examples], run.model.device)
    return found, lambda model, batch: model(**batch.inputs)


def text_rows(run: LoadedModel, data: Data) -> list[list[int]]:
    """The ids of texts in rows of the same length, for a language model, or one text in a row, for an encoder, to which each
    line of a file is a text."""
    where, texts = _texts(data)
    if run.tokenizer is None or run.task not in ("continue", "read"):
        what = "has no tokenizer" if run.tokenizer is None else "was trained on pairs of texts"
        advice = " or ".join(SPLITS[:2])
        raise ValueError(f"{run.name} {what}, so it can't be calibrated with texts; give a split of its data: {advice}")
    if run.task == "read" and isinstance(data, str | Path):
        texts = [line for text in texts for line in text.splitlines() if line.strip()]
    length = min(ROW, run.model.max_positions or ROW)
    rows = [run.encode(text) for text in texts]
    if run.task == "continue":
        ids = [token for row in rows for token in row]
        rows = [ids[start : start + length] for start in range(0, max(len(ids) - length, 0) + 1, length)]
    rows = [row[:length] for row in rows if len(row) > 1]
    if not rows:
        raise ValueError(f"the calibration data {where} hold no text; give a file with some thousand words")
    return rows


def _texts(data: Data) -> tuple[str, list[str]]:
    """Where texts are from, for messages, and the texts."""
    if not isinstance(data, str | Path):
        return "given", list(data)
    path = Path(data)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise ValueError(f"calibration data are a split ({', '.join(SPLITS)}) or a text file, and {path} {what}")
    return str(path), [read_text(path)]


def amount(found: Sequence[Batch]) -> tuple[int, int]:
    """How many rows and tokens batches have; (rows, 0) for inputs other than tokens."""
    layouts = [(batch.rows, batch.inputs.get("layout")) for batch in found]
    tokens = sum(int(layout.valid.expand(n, -1).sum()) for n, layout in layouts if isinstance(layout, Layout))
    return sum(batch.rows for batch in found), tokens


def batched(rows: Sequence[Sequence[int]], device: torch.device) -> list[Batch]:
    """Batches of rows of token ids, padded on the right."""
    some: list[Batch] = []
    step = max(1, TOKENS // max(map(len, rows)))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        width = max(map(len, part))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in part])
        inputs = {"ids": ids, "layout": Layout.from_lengths([len(row) for row in part], width)}
        count = sum(map(len, part))
        some.append(Batch(inputs, None, {"loss": count}, count, ids.numel()).to(device))
    return some
