"""Bug 14 of those that others shipped: tied weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small import (
    spec,
)

import qkv
from qkv.training.checkpoints.weights import load_model, model_tensors


def tied(built: Any) -> bool:
    assert built.encoder is not None
    return built.head.weight is built.decoder.embedding.weight is built.encoder.embedding.weight


TRANSFORMS = {
    "cast": lambda m: m.to(torch.bfloat16).half().double(),
    "copied": copy.deepcopy,
    "state dict": lambda m: (m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}), m)[1],
    "loaded": lambda m: (load_model(m, {k: v.clone() for k, v in model_tensors(m).items()}), m)[1],
    "assigned": lambda m: (m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True), m)[1],
    "from meta": lambda m: qkv.build(m.spec, device="meta").to_empty(device="cpu"),
}


@pytest.mark.parametrize("how", TRANSFORMS)
def test_bug_14_tied_weights_stay_tied(how: str) -> None:
    """Casting, copying, loading (in place or by assignment) and materializing leave one table if there was one."""
    built = qkv.build(spec("encoder-decoder"))
    assert tied(built)
    assert tied(TRANSFORMS[how](built))
    assert len(model_tensors(built)) == len({id(p) for p in built.parameters()})
    assert built.spec.n_parameters == sum(p.numel() for p in built.parameters())
