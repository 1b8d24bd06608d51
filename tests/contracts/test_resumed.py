"""resumed = uninterrupted: a run that is killed and resumed ends with the same bits as one that was not, dropout on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from axes import FAMILIES, backends, words
from selection import Combination, Contract
from small import ids, padded, spec

import qkv
from qkv.core.batch import Batch
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.loop import fit
from qkv.training.objective import NextToken, SequenceToSequence
from qkv.training.settings import Training

STEPS, SAVED, KILLED = 5, 2, 3
CLOCKS = ("tokens_per_s", "mfu", "elapsed")


class Killed(Exception):
    """What ends a run in the middle of an accumulation."""


def stream(family: str, kill_at: int | None = None) -> Any:
    """Opens an endless stream of batches of unequal sizes; the batch numbered `kill_at` kills the process that asks."""

    def open_stream(position: dict[str, Any] | None) -> Iterator[Batch]:
        for number in itertools.count(position["next"] if position else 0):
            if number == kill_at:
                raise Killed
            yield batch(family, number)

    return open_stream


def batch(family: str, number: int) -> Batch:
    layout = padded([3 + number % 4, 2], "right", 7)
    tokens = ids(2, 7, seed=number)
    labels = ids(2, 7, seed=1000 + number).masked_fill(~layout.valid, -100)
    inputs: dict[str, Any] = {"ids": tokens, "layout": layout}
    if family == "encoder-decoder":
        source = padded([2, 4], "right", 5)
        inputs = {"ids": ids(2, 5, seed=2000 + number), "layout": source, "target": tokens, "target_layout": layout}
    count = int((labels != -100).sum())
    return Batch(inputs, labels, {"loss": count}, count, labels.numel(), {"next": number + 1})


def train(case: Combination, out: Path, kill_at: int | None = None, resume: bool = False) -> TransformerModel:
    position = T5Buckets(buckets=8) if case.family == "encoder" else ALiBi()
    made = qkv.build(spec(case.family, None, position, case.backend, dropout=0.2), seed=4)
    made.recompute(case.recompute)
    training = Training.from_dict(
        {
            "max_steps": STEPS,
            "save_every": SAVED,
            "eval_every": None,
            "log_every": 1,
            "accumulate": 2,
            "average": case.average,
            "schedule": {"kind": "inverse-square-root", "warmup": 2},
        }
    )
    objective = SequenceToSequence() if case.family == "encoder-decoder" else NextToken(label_smoothing=0.1)
    fit(made, stream(case.family, kill_at), objective, training, out=out, seed=9, resume=resume)
    return made


def history(out: Path) -> list[dict[str, Any]]:
    lines = [line for line in read_metrics(out / "metrics.jsonl") if line["type"] == "train"]
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines]


RESUMED = Contract(
    {
        "family": words(*FAMILIES),
        "backend": backends(),
        "recompute": words("none", "blocks"),
        "average": words(0, 2),
    },
    fast=1,
)


@pytest.mark.contract(RESUMED)
def test_a_resumed_training_is_the_uninterrupted_one(case: Combination, tmp_path: Path) -> None:
    whole = train(case, tmp_path / "whole")
    with pytest.raises(Killed):
        train(case, tmp_path / "cut", kill_at=2 * KILLED + 1)
    torch.manual_seed(123456)  # another process would not be where this one is
    resumed = train(case, tmp_path / "cut", resume=True)
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, dict(resumed.named_parameters())[name]), name
    assert history(tmp_path / "cut") == history(tmp_path / "whole")
    assert len(history(tmp_path / "whole")) == STEPS
    other = qkv.build(whole.spec, seed=4)
    assert any(not torch.equal(p, q) for p, q in zip(whole.parameters(), other.parameters(), strict=True))
