"""Which layers are quantized."""

from __future__ import annotations

from prunable_models import stirred
from quantizable_models import FAMILIES

from qkv.nn.models.quantized.select import matrices


def test_matrices_of_blocks_are_chosen_and_others_if_asked() -> None:
    model = stirred(FAMILIES["bert"][0])
    assert all(name.startswith("encoder.blocks") for name in matrices(model))
    assert "encoder.embedding" in matrices(model, embeddings=True)
    tied = matrices(model, head=True)
    assert {"head", "head.transform.dense"} <= set(tied)
    assert len(matrices(model, keep=["*.down"])) == len(matrices(model)) - 2
