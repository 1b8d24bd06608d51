"""Heads, neurons and layers by name: those that can't be removed."""

from __future__ import annotations

import pytest
from prunable_models import FAMILIES, SMALL

from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.pruning.remove import remove_heads


@pytest.mark.parametrize(
    ("family", "heads", "message"),
    [
        ("gpt2", {"decoder.0": [0, 1, 2, 3, 4, 5]}, "all 6 heads of decoder.0 would be removed"),
        ("gpt2", {"decoder.0": [6]}, "decoder.0 has heads 0 to 5; there is no 6"),
        ("gpt2", {"decoder.7": [0]}, "no attention layer 'decoder.7'; did you mean"),
        ("llama-gqa", {"decoder.0": [1]}, "leaves 1 and 2 query heads to key-value heads"),
    ],
)
def test_heads_that_cannot_be_removed(family: str, heads: dict[str, list[int]], message: str):
    with pytest.raises(ValueError, match=message):
        remove_heads(build(FAMILIES[family][0], seed=0), heads)


def test_models_whose_parts_cannot_be_removed():
    with pytest.raises(ValueError, match="from Transformers; this model is a RecurrentModel"):
        remove_heads(build(preset("rnnsearch", vocab_size=11, d_e=6, d_h=6, d_s=6), seed=0), {})
    shared = FAMILIES["gpt2"][0].replace({"decoder.order": (0, 1, 0, 1)})
    with pytest.raises(ValueError, match="layers of the decoder share blocks"):
        remove_heads(build(shared, seed=0), {"decoder.0": [0]})
    linear = preset("gpt2", **SMALL, max_positions=16).replace(
        {"decoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 6, "pattern": {"kind": "causal"}}}
    )
    with pytest.raises(ValueError, match="no attention layer whose heads can be removed"):
        remove_heads(build(linear, seed=0), {"decoder.0": [0]})
