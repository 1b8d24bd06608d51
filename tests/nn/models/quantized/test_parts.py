"""Matrices of layers by name: one of a linear layer, one of each expert."""

from __future__ import annotations

import torch

from qkv.nn.layers.grouped_linear import GroupedLinear
from qkv.nn.models.quantized.parts import experts_of, names, parts


def test_each_expert_is_a_matrix_of_its_name() -> None:
    grouped, plain = GroupedLinear(3, 4, 5), torch.nn.Linear(4, 2)
    torch.nn.init.normal_(grouped.weight)
    assert experts_of(plain) is None and experts_of(grouped) == 3
    assert names("a.up", grouped) == ["a.up.0", "a.up.1", "a.up.2"] and names("b", plain) == ["b"]
    found = parts({"a.up": grouped, "b": plain})
    assert list(found) == ["a.up.0", "a.up.1", "a.up.2", "b"]
    assert found["b"].weight is plain.weight and found["b"].expert is None
    assert torch.equal(torch.stack([found[f"a.up.{e}"].weight for e in range(3)]), grouped.weight)
