"""Batches of a small source, and what is in them."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from data_stand_in import Characters

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data import Batching, Reverse, Source, stream

TOY = Reverse(train=300, validation=40, test=40, longest=9)
SMALL = Batching(tokens=400, pool=64, max_length=32, context=32)


def batches(n: int | None, source: Source = TOY, batching: Batching = SMALL, **options: Any) -> list[Batch]:
    options = {"seq2seq": True, "seed": 1, **options}
    with stream(source, options.pop("tokenizer", Characters()), batching, **options) as opened:
        return list(itertools.islice(opened, n))


def same(a: Batch, b: Batch) -> bool:
    names = [name for name in a.inputs if "layout" not in name]
    return (
        all(torch.equal(a.inputs[name], b.inputs[name]) for name in names)
        and all(torch.equal(a.inputs[n].positions, b.inputs[n].positions) for n in a.inputs if n not in names)
        and torch.equal(a.labels, b.labels)  # type: ignore[arg-type]
        and (a.counts, a.tokens, a.slots, a.position, a.texts) == (b.counts, b.tokens, b.slots, b.position, b.texts)
    )


def read(batch: Batch) -> list[tuple[str, str]]:
    """The pairs in a sequence-to-sequence batch, through the layouts."""
    inputs = batch.inputs
    return list(
        zip(real(inputs["ids"], inputs["layout"]), real(inputs["target"], inputs["target_layout"]), strict=True)
    )


def real(ids: torch.Tensor, layout: Layout) -> list[str]:
    """The text in the real tokens of each row."""
    return [Characters().decode(row[v].tolist()) for row, v in zip(ids, valid(layout, ids), strict=True)]


def valid(layout: Layout, ids: torch.Tensor) -> torch.Tensor:
    return layout.valid.expand_as(ids)  # a layout of equal rows has one row for all
