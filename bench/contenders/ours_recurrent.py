"""qkv's recurrent translators, trained by the training loop's own step."""

from __future__ import annotations

from typing import Any

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.training.objective import SequenceToSequence
from qkv.training.step import Stepper

from .ours import training
from .plain import LR, facts
from .recurrent import RecurrentShape

KINDS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm", "directions": 1, "context": "final-state"},
    "gru": {"cell": "gru", "directions": 1, "context": "final-state"},
    "bahdanau": {"cell": "gru", "directions": 2, "context": "bahdanau"},
    "feeding": {"cell": "gru", "directions": 2, "context": {"kind": "luong", "score": "additive"}},
}


class FullRows:
    """`Stepper.take`, what `qkv train` does once a step, on rows without padding."""

    def __init__(self, shape: dict[str, int], kind: str, precision: str = "fp32") -> None:
        given = RecurrentShape(**shape)
        sizes = {"vocab_size": given.vocab_size, "d_e": given.d_e, "d_h": given.d_h, "d_s": given.d_s}
        d_a = {"d_a": given.d_a} if kind in ("bahdanau", "feeding") else {}
        model = qkv.build(qkv.preset("rnnsearch", **{**sizes, **d_a, **KINDS[kind]}), seed=0).train()
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
        self.stepper = Stepper(model, objective, training(precision, False), ALONE)
        self.facts = facts(model)

    def __call__(self) -> dict[str, float]:
        return {"loss": float(self.stepper.take([self.batch], LR).loss)}
