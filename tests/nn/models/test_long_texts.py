"""What models for long texts require of their batches."""

from __future__ import annotations

import pytest

import qkv
from qkv.nn.models.long_texts import has_global_attention, has_global_tokens, reads_unpadded

SIZES = {"vocab_size": 23, "d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 20, "max_positions": 64}


@pytest.mark.parametrize(
    "name, chosen, unpadded",
    [("longformer-base-4096", True, False), ("bigbird-roberta-base", False, True), ("bert-base", False, False)],
)
def test_families_of_long_texts(name: str, chosen: bool, unpadded: bool) -> None:
    model = qkv.build(qkv.preset(name, **SIZES), device="meta")
    assert (has_global_attention(model), reads_unpadded(model)) == (chosen, unpadded)


def test_a_recurrent_model_requires_nothing() -> None:
    model = qkv.build(qkv.preset("rnnsearch", vocab_size=9, d_e=4, d_h=4, d_s=4), device="meta")
    assert not has_global_attention(model) and not reads_unpadded(model)


def test_global_tokens_that_the_task_chooses_are_those_without_a_number() -> None:
    spec = qkv.preset("bert-base", **SIZES)

    def found(pattern: qkv.Pattern) -> bool:
        return has_global_tokens(spec.replace({"encoder.blocks.*.attention.pattern": pattern}).encoder)

    assert found(qkv.window(3) | qkv.global_tokens()) and found(qkv.full() & ~qkv.global_tokens())
    assert not found(qkv.window(3) | qkv.global_tokens(2)) and not found(qkv.full())
