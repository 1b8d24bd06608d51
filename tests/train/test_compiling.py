"""Compiling: a missing compiler is a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from qkv.train.compiling import compiled


def test_a_missing_compiler_is_a_sentence(monkeypatch):
    def missing():
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler.*install"):
        compiled(nn.Linear(2, 2), torch.device("cpu"))


def test_the_model_behind_it_is_the_model():
    model = nn.Linear(2, 2)
    wrapped = compiled(model, torch.device("meta"))
    assert dict(wrapped.named_parameters()).keys() == {f"_orig_mod.{name}" for name, _ in model.named_parameters()}
