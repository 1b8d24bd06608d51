"""`part_of`: some examples of a batch, for checks that compare parts with the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from ..core.batch import IGNORE, Batch
from ..core.layout import Layout
from .report import NotChecked

ROWS = "rows"  # the target (N, K) with the rows of the inputs that each of N examples has


def examples_in(batch: Batch) -> int:
    """How many examples a batch has; each has one row of the inputs unless the target `rows` says otherwise."""
    rows = batch.targets.get(ROWS)
    return batch.rows if rows is None else len(rows)


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """Examples start … stop − 1 of a batch. Raises NotChecked if the batch can't be split."""
    n, rows, targets = examples_in(batch), torch.arange(start, stop), dict(batch.targets)
    if ROWS in targets:
        own = targets[ROWS][start:stop]
        rows, numbers = own[own >= 0], torch.full_like(own, -1)
        numbers[own >= 0] = torch.arange(len(rows))
        targets[ROWS] = numbers
    inputs = _select(batch.inputs, rows, batch.rows)
    labels = _select(batch.labels, torch.arange(start, stop), n)
    chosen = _select({name: t for name, t in targets.items() if name != ROWS}, torch.arange(start, stop), n)
    counts = {}
    for name, count in batch.counts.items():
        whole, part = (batch.labels, labels) if name == "loss" else (batch.targets.get(name), chosen.get(name))
        if whole is None and count == n:
            counts[name] = stop - start
        elif not isinstance(whole, Tensor) or _count(whole) != count:
            raise NotChecked(f"the labels don't tell which {name!r} the batch counts, so it can't be split")
        else:
            counts[name] = _count(part)
    return replace(
        batch,
        inputs=inputs,
        labels=labels,
        targets=chosen | ({ROWS: targets[ROWS]} if ROWS in targets else {}),
        counts=counts,
        tokens=_tokens(batch, inputs, len(rows)),
        texts=batch.texts[start:stop] if len(batch.texts) == n else (),
    )


def _select(tree: Any, rows: Tensor, n: int) -> Any:
    def select(value: Any) -> Any:
        if isinstance(value, Layout):
            return value.select(rows)
        if not isinstance(value, Tensor):
            return value
        if value.ndim and len(value) == n:
            return value[rows]
        raise NotChecked("a tensor of the batch does not have one entry for each row, so it can't be split")

    return _pytree.tree_map(select, tree, is_leaf=lambda value: isinstance(value, Layout))


def _tokens(batch: Batch, inputs: dict[str, Any], n: int) -> int:
    layouts = [value for value in inputs.values() if isinstance(value, Layout)]
    if not layouts:
        return batch.tokens * n // batch.rows
    return sum(int(layout.valid.sum()) * (n if layout.shape[0] == 1 else 1) for layout in layouts)


def _count(labels: Tensor) -> int:
    return labels.numel() if labels.is_floating_point() else int((labels != IGNORE).sum())
