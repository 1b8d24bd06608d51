"""qkv's encoder–decoder: on full rows, and `qkv train translate` itself on sentences."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train
from qkv.training import loop
from qkv.training.objective import SequenceToSequence
from qkv.training.step import Stepper, StepResult

from .gate import Gate
from .gpt import DTYPES, check
from .ours import training
from .pairs import PairShape
from .plain import BETAS, CLIP, DECAY, EPS, LR, facts


def spec(shape: PairShape) -> qkv.Transformer:
    return qkv.preset("transformer", vocab_size=shape.vocab_size, dropout=shape.dropout, **sizes(shape))


def sizes(shape: PairShape) -> dict[str, int | str]:
    """As a recipe's `model` has them."""
    return {
        "d_model": shape.d_model,
        "d_ff": shape.d_ff,
        "n_layers": shape.n_layers,
        "n_heads": shape.n_heads,
        "placement": "pre",
    }


class FullRows:
    """`Stepper.take`, what `qkv train` does once a step, on rows without padding."""

    def __init__(self, shape: dict[str, int], precision: str, compiled: bool = False) -> None:
        given = PairShape(**shape)
        model = qkv.build(spec(given), seed=0).train()
        source, target = given.random_ids()
        self.batch = Batch(
            inputs={
                "ids": source,
                "layout": Layout.full(given.source),
                "target": target[:, :-1].contiguous(),
                "target_layout": Layout.full(given.target),
            },
            labels=target[:, 1:].contiguous(),
            counts={"loss": given.batch * given.target},
            tokens=given.batch * (given.source + given.target),
        )
        objective = SequenceToSequence(label_smoothing=0.0)
        self.stepper = Stepper(model, objective, training(precision, compiled), ALONE)
        self.facts = facts(model)

    def __call__(self) -> dict[str, float]:
        return {"loss": float(self.stepper.take([self.batch], LR).loss)}


class Decoding:
    """`model.generate` from random sources, greedy or with beams; the encoder's pass is part of it."""

    def __init__(self, shape: dict[str, int], precision: str, new: int, beams: int) -> None:
        given = PairShape(**shape)
        self.new, self.beams = new, beams
        self.model = qkv.build(spec(given), dtype=DTYPES[precision], seed=0).eval()
        self.source = given.random_ids()[0]
        self.facts = facts(self.model)

    def __call__(self) -> None:
        check(self.model.generate(self.source, bos_id=2, max_new_tokens=self.new, num_beams=self.beams), 1, self.new)


class Sentences:
    """The recipe `translate` with its own batches; a call lets its training loop take `steps` steps.

    It makes its batches in the training thread: a thread that makes them ahead would do so while others are measured.
    """

    def __init__(
        self,
        shape: dict[str, int],
        precision: str,
        dropout: float,
        settings: list[str],
        steps: int,
        compiled: bool = False,
    ) -> None:
        self.steps, self.place = steps, tempfile.TemporaryDirectory()
        recipe = Recipe.load("translate", [*settings, *overrides(PairShape(**shape), precision, dropout, compiled)])
        loop.Stepper = Gated
        Gated.gate.open(lambda: train(recipe, Path(self.place.name) / "run", device="cpu"))
        self.facts = Gated.facts

    def __call__(self) -> dict[str, float]:
        return Gated.gate.advance(self.steps)


class Gated(Stepper):
    """The training loop's stepper, which waits to be let through; there is one loop in a process."""

    gate = Gate()
    facts: ClassVar[dict[str, int]] = {}

    def __init__(self, model: nn.Module, *rest: Any) -> None:
        super().__init__(model, *rest)
        Gated.facts = facts(model)

    def take(self, batches: list[Batch], lr: float) -> StepResult:
        targets = sum(batch.counts["loss"] for batch in batches)
        tokens, slots = sum(batch.tokens for batch in batches), sum(batch.slots for batch in batches)
        self.gate.begin(target_tokens=targets, source_tokens=tokens - targets, slots=slots)
        taken = super().take(batches, lr)
        self.gate.done(float(taken.loss))
        return taken


def overrides(shape: PairShape, precision: str, dropout: float, compiled: bool) -> list[str]:
    """What makes of the recipe an endless run with the others' optimizer, loss and learning rate."""
    return [
        *(f"model.{name}={value}" for name, value in sizes(shape).items()),
        f"model.dropout={dropout}",
        "objective.label_smoothing=0.0",
        f"training.optimizer={{kind: adamw, lr: {LR}, betas: [{BETAS[0]}, {BETAS[1]}], eps: {EPS}, weight_decay: {DECAY}}}",
        "training.schedule=constant",
        *("training.average=0", "training.accumulate=1"),
        f"training.clip_norm={CLIP}",
        f"training.precision={precision}",
        f"training.compile={str(compiled).lower()}",
        "batching.workers=0",
        *("training.max_steps=1000000", "training.eval_every=null", "training.save_every=null"),
    ]
