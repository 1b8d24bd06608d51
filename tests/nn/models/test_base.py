"""The base classes of models: layouts of ids, ties after parameters were replaced, and what a kind has to define."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.core.layout import Layout
from qkv.nn.models.base import ModelModule, ModelSpec, layout_of

IDS = torch.zeros(2, 3, dtype=torch.int64)


class Tied(ModelModule):
    def __init__(self) -> None:
        super().__init__(None)
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.tie()

    def tie(self) -> None:
        self.b.weight = self.a.weight


def test_the_layout_of_ids() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    layout = Layout.from_lengths([2, 3])
    assert layout_of(IDS, layout, None) is layout
    assert torch.equal(layout_of(IDS, None, mask).valid, mask.bool())
    assert layout_of(IDS, None, None).shape == (1, 3) and layout_of(IDS, None, None).padding == "none"
    with pytest.raises(ValueError, match="give a layout or an attention mask, not both"):
        layout_of(IDS, layout, mask)
    with pytest.raises(ValueError, match=r"ids are \(batch, length\), not \(3,\)"):
        layout_of(IDS[0], None, None)


def test_ties_survive_casts_and_loaded_parameters() -> None:
    model = Tied()
    model.double()
    assert model.a.weight is model.b.weight and model.dtype == torch.float64
    model.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()}, assign=True)
    assert model.a.weight is model.b.weight


def test_what_a_kind_has_to_define() -> None:
    class Nothing(ModelSpec, kind="nothing-of-this-test"):
        vocab_size: int = 3

    spec = Nothing(initialization={"kind": "glorot"})
    assert spec.stacks() == []
    for call in (spec.module, spec.cost, spec.parts):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(ValueError, match="recompute='blocks': a nothing-of-this-test model has no blocks"):
        ModelModule(spec).recompute("blocks")
    del ModelSpec.kinds["nothing-of-this-test"]
