"""Pruned models in the Hub's format: if a family can say it, transformers computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from qkv.io.directories.save import save
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.pruning.remove import remove_heads

SIZES = {"vocab_size": 11, "d_model": 24, "n_layers": 2, "n_heads": 6}


def llama(heads: dict[str, list[int]], **more: int) -> nn.Module:
    return remove_heads(build(preset("llama", **SIZES, **more), seed=0).eval(), heads)


@torch.no_grad()
def test_a_llama_with_fewer_heads_of_the_same_width(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    model = llama({"decoder.0": [2, 3], "decoder.1": [0, 1]}, n_kv_heads=3)
    save(model, tmp_path, "hub")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert (theirs.config.num_attention_heads, theirs.config.num_key_value_heads, theirs.config.head_dim) == (4, 2, 4)
    ids = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(theirs(ids).logits, model(ids), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"decoder.0": [1], "decoder.1": [0]}, "llama needs a number of heads that divides its width in transformers"),
        ({"decoder.0": [1, 2]}, "blocks.1.attention.n_heads is 4 there and 6 here"),
    ],
)
def test_what_no_family_says_is_told(heads: dict[str, list[int]], message: str, tmp_path: Path):
    with pytest.warns(UserWarning, match=message):
        save(llama(heads), tmp_path / "out", "hub")
