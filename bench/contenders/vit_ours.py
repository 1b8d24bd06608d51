"""qkv's vision Transformer, as `qkv train` steps it; and what feeding it pictures that are changed by chance takes."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np

import qkv
from qkv.core.batch import Batch
from qkv.core.ranks import ALONE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Source, Split, Table
from qkv.runs.tasks.image_classification.task import ImageClassify
from qkv.training.objective import Labels
from qkv.training.step import Stepper

from . import vit
from .ours import training
from .plain import LR, facts


def stepper(shape: vit.Shape, precision: str = "fp32", compiled: bool = False) -> Stepper:
    side, patch = shape["image"], shape["patch"]
    sizes = {name: shape[name] for name in ("d_model", "n_layers", "n_heads", "d_ff", "labels")}
    spec = qkv.preset("vit-base-16", image=(side, side), patch=(patch, patch), eps=1e-6, **sizes)
    return Stepper(qkv.build(spec, seed=0).train(), Labels(), training(precision, compiled), ALONE)


class TrainingStep:
    """`Stepper.take`: what `qkv train` does once a step."""

    def __init__(self, shape: vit.Shape, precision: str, compiled: bool = False) -> None:
        pixels, labels = vit.pictures(shape)
        tokens = shape["batch"] * vit.tokens(shape)
        self.batch = Batch({"ids": pixels}, labels, {"loss": shape["batch"]}, tokens, tokens)
        self.stepper = stepper(shape, precision, compiled)
        self.facts = facts(self.stepper.model)

    def __call__(self) -> dict[str, float]:
        return {"loss": float(self.stepper.take([self.batch], LR).loss)}


class Noise(Source, kind="bench-noise"):
    """Pictures in memory, as small files are once they were read."""

    side: int
    count: int = 4096
    labels: int

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.labels)))

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return _noise(self.side, self.count, self.labels)


@lru_cache(maxsize=1)
def _noise(side: int, count: int, labels: int) -> Table:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, side, side), np.uint8)
    return [{"image": picture, "label": i % labels} for i, picture in enumerate(pixels)]


class Loading:
    """Training steps on a stream of pictures with these changes; without any, on one batch that is there already.

    `waited` is the share of the time in which the step waited for its batch.
    """

    def __init__(
        self, shape: vit.Shape, changes: dict[str, Any] | None, steps: int, workers: int | str = "auto"
    ) -> None:
        self.stepper, self.steps = stepper(shape), steps
        self.facts = facts(self.stepper.model)
        source = Noise(side=shape["image"], labels=shape["labels"])
        seen = self.stepper.model.spec.encoder.embedding
        task = ImageClassify.from_dict({"kind": "image-classify", **(changes or {})}).resolve(source, None, seen)
        batching = Batching(tokens=shape["batch"] * vit.tokens(shape), workers=workers)
        self.batches = stream(source, None, batching, seq2seq=False, task=task)
        self.still = None if changes is not None else next(self.batches)
        if self.still is not None:
            self.batches.close()

    def __call__(self) -> dict[str, float]:
        began, waited, loss = time.perf_counter(), 0.0, 0.0
        for _ in range(self.steps):
            asked = time.perf_counter()
            batch = self.still if self.still is not None else next(self.batches)
            waited += time.perf_counter() - asked
            loss += float(self.stepper.take([batch], LR).loss)
        return {"waited": waited / (time.perf_counter() - began), "loss": loss / self.steps}
