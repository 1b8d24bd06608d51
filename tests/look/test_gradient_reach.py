"""How far gradients reach back: the norm of the Jacobian, held to finite differences."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.look.gradient_reach import reach


def test_a_gradient_is_what_finite_differences_say() -> None:
    """Of a model with one direction: the Jacobian's norm by each embedding, the nearest first."""
    spec = qkv.preset("rnnsearch", vocab_size=9, d_e=3, d_h=4, d_s=4, directions=1, context="fixed-context")
    model = qkv.build(spec).eval()
    ids = torch.tensor([[1, 2, 3, 4]])

    def last(x: torch.Tensor) -> torch.Tensor:
        return model.encoder.layers(x)[0][0, -1]

    jacobian = torch.autograd.functional.jacobian(last, model.source_embedding(ids, None).detach())
    wanted = jacobian[:, 0].square().sum((0, 2)).sqrt().flip(0)
    found = torch.stack([torch.tensor(reach(model, ids, seed)) ** 2 for seed in range(40)]).mean(0).sqrt()
    torch.testing.assert_close(found, wanted, rtol=0.15, atol=0)
    with pytest.raises(ValueError, match="in an encoder or decoder stack, and Linear has none"):
        reach(torch.nn.Linear(2, 2), ids)
