"""`qkv train`, from its start to its end."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

import qkv
from qkv.training.logging.metrics_file import read_metrics

from . import whole
from .plain import facts


class Run:
    """A recipe with settings on a text; a call is a whole run, each with another seed.

    With `clock`, a file that holds seconds, it trains for so long. The loss is that of the delivered weights on the whole
    validation text, in windows of `context` tokens as everybody's.
    """

    def __init__(
        self, recipe: str, settings: list[str], train: str, validation: str, context: int, clock: str | None = None
    ) -> None:
        self.recipe, self.settings, self.context, self.clock = recipe, settings, context, clock
        self.train, self.validation, self.seed = train, validation, 0

    def __call__(self) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as place:
            _, took = whole.run([sys.executable, "-m", "qkv", "train", *self.arguments(), "--out", "run"], Path(place))
            self.seed += 1
            run = qkv.load(Path(place) / "run")
            told = [
                line["elapsed"] for line in read_metrics(Path(place) / "run" / "metrics.jsonl") if "elapsed" in line
            ]
        assert run.tokenizer is not None
        ids = torch.tensor(run.tokenizer.encode(Path(self.validation).read_text(encoding="utf-8")))

        def loss(inputs: Tensor, labels: Tensor) -> Tensor:
            return run.model(inputs, labels=labels).nll / labels.numel()

        found = whole.validation_loss(loss, ids, self.context)
        return {"train_s": max(told), **took, "loss": found, **facts(run.model)}

    def arguments(self) -> list[str]:
        data = (("path", self.train), ("validation_path", self.validation), ("test_path", self.validation))
        given = [*(f"data.{name}={path}" for name, path in data), f"seed={self.seed}", *self.settings]
        if self.clock is not None:
            given += [f"training.max_time={float(Path(self.clock).read_text()):.1f}", "training.max_steps=null"]
        return [self.recipe, *given]
