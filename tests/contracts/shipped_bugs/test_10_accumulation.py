"""Bug 10 of those that others shipped: accumulation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from small import (
    ids,
    same,
    spec,
    stirred,
)

import qkv
from qkv.core.batch import IGNORE, Batch
from qkv.training.loop import fit
from qkv.training.objective import NextToken
from qkv.training.settings import Training


def test_bug_10_accumulation_does_not_average_averages(tmp_path: Path) -> None:
    """Two runs of `fit`, one over whole batches and one over parts with unequal counts, end with the same weights."""
    tokens, labels = ids(4, 6), ids(4, 6, seed=1)
    labels[1:, 2:] = IGNORE

    def batches(parts: list[slice]) -> Any:
        def open_stream(position: dict[str, Any] | None) -> Iterator[Batch]:
            for n in itertools.count():
                part = parts[n % len(parts)]
                count = int((labels[part] != IGNORE).sum())
                yield Batch({"ids": tokens[part]}, labels[part], {"loss": count}, count, count, {"n": n})

        return open_stream

    ends = []
    for i, parts in enumerate(([slice(0, 4)], [slice(0, 1), slice(1, 4)])):
        built = stirred(qkv.build(spec("decoder"), dtype=torch.float64))
        optimizer = {"kind": "sgd", "lr": 0.1}
        training = Training.from_dict(
            {
                "max_steps": 3,
                "accumulate": len(parts),
                "optimizer": optimizer,
                "schedule": "constant",
                "eval_every": None,
            }
        )
        fit(built, batches(parts), NextToken(), training, out=tmp_path / str(i))
        ends.append(torch.cat([p.detach().flatten() for p in built.parameters()]))
    same(ends[1], ends[0], 1e-7)  # a step's norm is clipped in single precision
