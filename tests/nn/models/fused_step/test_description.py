"""The description of a stack is made once, and again after a change in the stack."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import qkv
from qkv.nn.models.fused_step.description import Description, description_of
from qkv.nn.models.transformer import TransformerModel


@pytest.fixture
def model() -> TransformerModel:
    spec = qkv.preset("gpt2", n_layers=2, d_model=64, n_heads=4, vocab_size=50, max_positions=64)
    return qkv.build(spec, seed=0).eval()


def described(model: TransformerModel) -> Description:
    assert model.decoder is not None
    return description_of(model.decoder)


def test_searches_and_prompts_share_one_description(model: TransformerModel) -> None:
    model.generate([[3, 4, 5]], max_new_tokens=3)
    first = described(model)
    model.generate([list(range(3, 43))], max_new_tokens=3)
    assert described(model) is first and first.fits and first.encoding is not None


def test_copies_of_the_layers_are_apart(model: TransformerModel) -> None:
    about = described(model)
    one, other = about.layers(), about.layers()
    one[0].slot = 7
    assert other[0].slot == 0 and one[1].qkv.weights == other[1].qkv.weights


@pytest.mark.parametrize("change", ["weights", "module", "training", "setting", "dtype"])
def test_a_changed_stack_is_described_again(model: TransformerModel, change: str) -> None:
    before, block = described(model), model.decoder.blocks[0]
    ids = [[3, 4, 5]]
    if change == "weights":
        block.attention.out.weight = nn.Parameter(torch.zeros_like(block.attention.out.weight))
    elif change == "module":
        block.norm["attention"] = nn.Identity()
    elif change == "training":
        block.train()
    elif change == "setting":
        block.attention.scale = 0.1
    else:
        model.bfloat16()
    after = described(model)
    assert after is not before and after.fits == (change != "training")
    model.eval()
    with torch.no_grad():
        reference = model(torch.tensor(ids)).argmax(-1)[0, -1].item()
    assert model.generate(ids, max_new_tokens=1)[0, -1].item() == reference
