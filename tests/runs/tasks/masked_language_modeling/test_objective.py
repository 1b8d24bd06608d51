"""BERT's objective: both losses come from one forward pass."""

from __future__ import annotations

import torch
from pretraining_runs import batch_of

from qkv.core.batch import IGNORE
from qkv.training.objective import Objective


def test_both_losses_of_bert_come_of_one_pass() -> None:
    model, batch = batch_of("bert")
    objective = Objective.from_dict({"kind": "masked-language-model"})
    passes = []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    terms = objective(model.eval(), batch)
    assert len(passes) == 1
    labels = batch.labels
    logits = model(**batch.inputs)
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(terms["loss"].sum, plain, rtol=1e-4, atol=1e-4)
    assert terms["loss"].count == int((labels != IGNORE).sum())
    scores = model.classify(**batch.inputs)
    classes = batch.targets["next_sentence"]
    plain = torch.nn.functional.cross_entropy(scores, classes, reduction="sum")
    torch.testing.assert_close(terms["next_sentence"].sum, plain, rtol=1e-4, atol=1e-4)
    assert terms["next_sentence"].count == len(classes)
