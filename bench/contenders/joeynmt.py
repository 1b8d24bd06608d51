"""JoeyNMT: its own training on sentences, in batches of tokens."""

from __future__ import annotations

import tempfile
from typing import Any

from joeynmt import training
from joeynmt.batch import Batch

from .gate import Gate
from .pairs import PairShape
from .plain import BETAS, CLIP, DECAY, LR, facts


class Sentences:
    """`joeynmt train` with a configuration of the same sizes; a call lets its training loop take `steps` steps.

    Its batches are drawn at random, without regard to lengths, up to half of `tokens` counting the longer side. What it
    drops besides what the others drop: attention's weights and the feed-forward's inside.
    """

    def __init__(
        self,
        shape: dict[str, int],
        precision: str,
        dropout: float,
        source: str,
        target: str,
        words: str,
        tokens: int,
        steps: int,
    ) -> None:
        assert precision == "fp32", "on a CPU it switches half precision off"
        self.steps, self.place = steps, tempfile.TemporaryDirectory()
        config = configuration(PairShape(**shape), dropout, (source, target, words), tokens, self.place.name)
        training.TrainManager = Gated
        Gated.gate.open(lambda: training.train(0, 1, config, skip_test=True))
        self.facts = Gated.facts

    def __call__(self) -> dict[str, float]:
        return Gated.gate.advance(self.steps)


class Gated(training.TrainManager):
    """Its manager of training, which waits to be let through."""

    gate = Gate()
    facts: dict[str, Any] = {}  # noqa: RUF012  (set once, by the one manager there is)

    def __init__(self, model: Any, **rest: Any) -> None:
        super().__init__(model=model, **rest)
        Gated.facts = facts(model)

    def _train_step(self, batch: Batch) -> tuple[float, int]:
        targets, sources = int(batch.ntokens), int(batch.src_length.sum())
        self.gate.begin(target_tokens=targets, source_tokens=sources, slots=batch.src.numel() + batch.trg.numel())
        given = super()._train_step(batch)
        self.gate.done(given[0])  # normalized by tokens
        return given


def configuration(
    shape: PairShape, dropout: float, files: tuple[str, str, str], tokens: int, place: str
) -> dict[str, Any]:
    """What its YAML file would hold."""
    source, target, words = files
    base = source.rpartition(".")[0]
    assert (source, target) == (f"{base}.source", f"{base}.target"), "it finds a side's file by its suffix"
    side = {"level": "word", "voc_file": words, "max_length": 256, "lowercase": False}
    stack = {
        "type": "transformer",
        "num_layers": shape.n_layers,
        "num_heads": shape.n_heads,
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": dropout},
        "hidden_size": shape.d_model,
        "ff_size": shape.d_ff,
        "dropout": dropout,
        "layer_norm": "pre",
    }
    return {
        "name": "bench",
        "model_dir": place,
        "use_cuda": False,
        "data": {
            "train": base,
            "dev": base,
            "dataset_type": "plain",
            "sample_dev_subset": 10,
            "src": {**side, "lang": "source"},
            "trg": {**side, "lang": "target"},
            "special_symbols": {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
        },
        "testing": {},
        "training": {
            "optimizer": "adamw",
            "adam_betas": list(BETAS),
            "learning_rate": LR,
            "learning_rate_min": 0.0,
            "scheduling": "exponential",
            "decrease_factor": 1.0,
            "weight_decay": DECAY,
            "clip_grad_norm": CLIP,
            "normalization": "tokens",
            "batch_size": tokens // 2,
            "batch_type": "token",
            "epochs": 1000,
            "validation_freq": 1_000_000,
            "logging_freq": 100,
        },
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "encoder": stack,
            "decoder": dict(stack),
        },
    }
