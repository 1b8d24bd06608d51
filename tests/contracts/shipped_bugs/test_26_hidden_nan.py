"""Bug 26 of those that others shipped: hidden nan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small import (
    ids,
    spec,
)

import qkv
from qkv.core.batch import Batch
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.loop import fit
from qkv.training.objective import NextToken, Objective
from qkv.training.result import Diverged
from qkv.training.settings import Training


class Broken(Objective, kind="broken-in-contracts"):
    """A loss that is not a number from the second batch on."""

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Any:
        terms = NextToken()(model, batch)
        bad = batch.position["n"] > 0
        return {name: type(t)(t.sum * float("nan"), t.count) if bad else t for name, t in terms.items()}


def test_bug_26_a_log_does_not_hide_nan(tmp_path: Path) -> None:
    """NaN losses stand in metrics.jsonl as NaN, with the step and its data; the weights are left, and training stops."""

    def open_stream(position: dict[str, Any] | None) -> Iterator[Batch]:
        for n in itertools.count():
            yield Batch({"ids": ids(2, 5, seed=n)}, ids(2, 5, seed=n + 50), {"loss": 10}, 10, 10, {"n": n})

    built = qkv.build(spec("decoder"))
    training = Training.from_dict(
        {"max_steps": 9, "max_bad_steps": 3, "log_every": 1, "eval_every": None, "save_every": None}
    )
    with pytest.raises(Diverged, match="NaN"):
        fit(built, open_stream, Broken(), training, out=tmp_path)
    lines = list(read_metrics(tmp_path / "metrics.jsonl"))
    bad = [line for line in lines if line.get("event") == "bad step"]
    assert [line["step"] for line in bad] == [2, 3, 4]
    assert all(line["loss"] != line["loss"] for line in bad)
    assert '"NaN"' in (tmp_path / "metrics.jsonl").read_text()
    assert all(bool(p.isfinite().all()) for p in built.parameters())
