"""Training steps on batches that are made as they are needed, or that are there already: what making them costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from qkv.core.batch import Batch
from qkv.core.ranks import ALONE
from qkv.data.loader.stream import stream
from qkv.io.directories.build import build
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import make
from qkv.training.step import Stepper

STEPS = 12  # of a round, so each has its share of pools that are made
HELD = 8 * STEPS  # batches that are made before where none is made: those that the others make, in their order
POOL = "batching.pool=256"  # some four modules, a dozen batches or so
DATA = ["data={kind: stdlib, packages: [json, email, http, logging], validation: 0.1, test: 0.1}"]


class Steps:
    """Steps of a recipe's training. `workers` as in `batching`; None takes batches that were made before."""

    def __init__(self, recipe: str, settings: list[str], workers: int | str | None) -> None:
        chosen = Recipe.load(recipe, [*DATA, POOL, *settings])
        tokenizer = make(chosen)
        chosen = chosen.resolve_data(tokenizer)
        spec = chosen.model.spec(None if tokenizer is None else tokenizer.vocab_size)
        model = build(spec, seed=0).train()
        batching = chosen.batching.replace(workers=0 if workers is None else workers)
        opened = stream(
            chosen.data, tokenizer, batching, seq2seq=spec.is_encoder_decoder, task=chosen.task, seed=chosen.seed
        )
        self.batches: Iterator[Batch] = opened
        self._read_once(tokenizer is not None)
        if workers is None:
            self.batches = itertools.cycle(list(itertools.islice(opened, HELD)))
        training = chosen.training.replace(precision="fp32", compile=False)
        self.stepper = Stepper(model, chosen.objective, training, ALONE)
        self.facts: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}

    def _read_once(self, words: bool) -> None:
        """The first epoch, in which texts become ids, which are remembered."""
        while words and next(self.batches).position["epoch"] == 0:
            pass

    def __call__(self) -> dict[str, float]:
        """Some steps, on the same batches whoever makes them."""
        tokens = loss = 0.0
        for _ in range(STEPS):
            batch: Batch = next(self.batches)
            taken = self.stepper.take([batch], 1e-4)
            tokens, loss = tokens + taken.tokens, float(taken.loss)
        return {"loss": loss, "tokens": tokens}
