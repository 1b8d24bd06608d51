"""loaded = saved: a model that is saved and loaded again has the same spec, weights and logits, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, named, patterns, positions, words
from selection import Combination, Contract
from small import alone, ids, spec, stirred

import qkv

SAVED = Contract(
    {
        "position": positions(),
        "block": named(BLOCKS),
        "family": words(*FAMILIES),
        "pattern": patterns(),
        "heads": named(HEADS),
    },
    turned=["pattern", "heads"],
    fast=1,
    whole=2,
)


@pytest.mark.filterwarnings("ignore:.* is saved under the model type")
@pytest.mark.contract(SAVED)
@torch.no_grad()
def test_a_saved_model_loads_as_it_was(case: Combination, tmp_path: Path) -> None:
    parts = (case.pattern, case.position, "auto", case.heads, case.block)
    built = stirred(qkv.build(spec(case.family, *parts))).eval()
    built.save(tmp_path / "model")
    again = qkv.load(tmp_path / "model", device="cpu").model.eval()
    assert again.spec == built.spec and again.state_dict().keys() == built.state_dict().keys()
    assert all(torch.equal(tensor, built.state_dict()[name]) for name, tensor in again.state_dict().items())
    inputs = {"ids": ids(2, 9), "layout": alone(9)}
    if case.family == "encoder-decoder":
        inputs |= {"target": ids(2, 6, seed=1), "target_layout": alone(6)}
    assert torch.equal(again(**inputs), built(**inputs))
