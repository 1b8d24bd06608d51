"""Bug 16 of those that others shipped: dropout in evaluation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every import call, every_backend, every_family
from fast_subset import fast
from small import (
    gradients,
    ids,
    same,
    same_gradients,
    spec,
    stirred,
)

import qkv
from qkv.generation import generate
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rotary import Rotary


@every_family
def test_bug_16_evaluation_is_without_dropout(family: str) -> None:
    """eval() gives the same numbers twice, as the model without dropout does; train() does not."""
    built, tokens = qkv.build(spec(family, dropout=0.5), dtype=torch.float64), ids(2, 6)
    plain = qkv.build(spec(family), dtype=torch.float64)
    assert not torch.equal(call(built.train(), tokens), call(built, tokens))
    assert torch.equal(call(built.eval(), tokens), call(built, tokens))
    same(call(built, tokens), call(plain, tokens))


def test_bug_16_generation_is_without_dropout_and_leaves_the_mode() -> None:
    """A model in training mode generates what it would in evaluation mode, and is in training mode afterwards."""
    built = qkv.build(spec("decoder", dropout=0.5)).train()
    first = [generate(built, [[3, 4, 5]], max_new_tokens=12).best for _ in range(3)]
    assert all(module.training for module in built.modules())
    assert first == [generate(built.eval(), [[3, 4, 5]], max_new_tokens=12).best] * 3


@every_family
@every_backend
@pytest.mark.parametrize("policy", fast(["blocks", "alternate"], "blocks"))
def test_bug_16_checkpointing_repeats_the_same_dropout(family: str, backend: str, policy: Any) -> None:
    """Activations that are made again in the backward pass drop what they dropped, for every kind of position."""
    for position in (T5Buckets(buckets=8), ALiBi(), Rotary()):
        built = stirred(qkv.build(spec(family, None, position, backend, dropout=0.3), dtype=torch.float64))
        found = []
        for how in ("none", policy):
            built.recompute(how)
            torch.manual_seed(5)
            sums = call(built.train(), ids(2, 6), labels=ids(2, 6, seed=1))
            sums.loss.backward()
            found.append((float(sums.loss), gradients(built)))
        assert found[0][0] == found[1][0]
        same_gradients(found[1][1], found[0][1], 1e-12)
