"""ELECTRA's objective: the loss of the discriminator does not reach the generator."""

from __future__ import annotations

from pretraining_runs import batch_of

from qkv.core.batch import IGNORE
from qkv.training.objective import Objective


def test_electras_generator_learns_nothing_of_the_discriminators_loss() -> None:
    model, batch = batch_of("electra")
    objective = Objective.from_dict({"kind": "replaced-tokens"})
    terms = objective(model.train(), batch)
    assert terms["loss"].weight == 50 and terms["loss"].count == batch.tokens
    assert terms["generator"].count == int((batch.labels != IGNORE).sum())
    terms["loss"].sum.backward()
    own = {n for n, p in model.named_parameters() if p.grad is None}
    tables = {"encoder.embedding.weight", "encoder.embedding.types", "encoder.position.weight"}
    assert own == {n for n, _ in model.named_parameters() if n.startswith("head.generator")} - tables
