"""`evaluating`: dropout and gradients are off inside, and every module is back in its mode afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import qkv
from qkv.generation import generate, score
from qkv.generation.model_interface import evaluating
from qkv.nn.models.heads.text import TokenClassifier

SIZES = {"vocab_size": 20, "d_model": 8, "n_layers": 1, "n_heads": 2, "max_positions": 16}
IDS = torch.tensor([[3, 4, 5]])


def test_modules_are_back_in_their_mode_even_after_an_error() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Dropout(0.5))
    model[1].eval()
    modes = [module.training for module in model.modules()]
    assert True in modes and False in modes
    with pytest.raises(RuntimeError, match="inside"), evaluating(model):
        assert not any(module.training for module in model.modules()) and torch.is_inference_mode_enabled()
        raise RuntimeError("inside")
    assert [module.training for module in model.modules()] == modes and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("name", "head", "said"),
    [
        ("gpt2", None, "this model has no head, so it predicts no tokens"),
        ("bart-base", None, "this model has no head, so it predicts no tokens"),
        ("gpt2", TokenClassifier(labels=3), "this model's head, 'token-classifier', predicts no tokens"),
        ("bert-base", "its own", "an encoder alone does not decode"),
    ],
)
def test_a_model_that_predicts_no_tokens_says_what_it_lacks(name: str, head: Any, said: str) -> None:
    spec: Any = qkv.preset(name, **SIZES)
    model: Any = qkv.build(spec if head == "its own" else spec.replace(head=head))
    start: Any = {"bos_id": 1} if model.is_encoder_decoder else {}
    whole: Any = qkv.build(qkv.preset("gpt2", **SIZES))
    calls = [
        lambda: model.generate(IDS, **start),
        lambda: model.generate(IDS, num_beams=2, **start),
        lambda: model.generate(IDS, speculate="lookup", **start),
        lambda: whole.generate(IDS, draft=model),
        lambda: generate(model, [[3, 4]], **start),
        lambda: score(model, [[3, 4]], [[5]], **start),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=said):
            call()


def test_a_step_without_a_head_says_so() -> None:
    model: Any = qkv.build(qkv.preset("gpt2", **SIZES).replace(head=None))
    with pytest.raises(ValueError, match="this model has no head that predicts a next token"):
        model.step(IDS, model.start(1))


def test_the_head_that_the_message_names_generates() -> None:
    model: Any = qkv.build(qkv.preset("gpt2", **SIZES).replace(head=None).replace(head=qkv.LanguageModel()))
    assert model.generate(IDS, max_new_tokens=2).shape == (1, 5)
