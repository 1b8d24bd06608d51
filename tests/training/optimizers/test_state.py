"""Optimizers that make their state at once, several as one, and decoupled decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qkv.training.optimizers.state import Combined, Stateful, shrink


class Counting(Stateful):
    """Each step adds 1 to a count in float16 and subtracts lr from the parameter."""

    def initial(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"count": torch.zeros(2, dtype=torch.float16)}

    def move(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        for parameter in parameters:
            self.state[parameter]["count"] += 1
            parameter -= group["lr"]


def made(*values: float, lr: float = 1.0) -> tuple[list[torch.nn.Parameter], Counting]:
    some = [torch.nn.Parameter(torch.tensor([value])) for value in values]
    return some, Counting([{"params": some}], lr=lr)


def test_only_parameters_with_a_gradient_move() -> None:
    (a, b), optimizer = made(1.0, 2.0)
    b.grad = torch.ones(1)
    optimizer.step()
    assert (a.item(), b.item()) == (1.0, 1.0)
    assert [optimizer.state[p]["count"].tolist() for p in (a, b)] == [[0, 0], [1, 1]]


def test_a_state_is_loaded_into_the_tensors_that_are_there_with_their_types() -> None:
    """PyTorch's own way would cast the counts to the parameter's fp32."""
    (a,), optimizer = made(1.0)
    a.grad = torch.ones(1)
    optimizer.step()
    saved = optimizer.state_dict()
    (c,), other = made(5.0, lr=9.0)
    there = other.state[c]["count"]
    other.load_state_dict(saved)
    assert other.state[c]["count"] is there and there.dtype == torch.float16 and there.tolist() == [1, 1]
    assert other.param_groups[0]["lr"] == 1.0 and other.param_groups[0]["params"] == [c]


def test_a_combination_shares_the_groups_of_its_parts() -> None:
    ((a,), one), ((b,), other) = made(1.0), made(2.0)
    both = Combined(one, other)
    both.param_groups[1]["lr"] = 0.5
    a.grad, b.grad = torch.ones(1), torch.ones(1)
    assert both.step(lambda: 3.0) == 3.0
    assert (a.item(), b.item()) == (0.0, 1.5) and both.state[b]["count"].tolist() == [1, 1]


def test_decay_is_decoupled_from_the_gradient() -> None:
    w = torch.tensor([2.0])
    shrink({"weight_decay": 0.1, "lr": 0.5}, [w])
    assert w.tolist() == torch.tensor([1.9]).tolist()
    shrink({"weight_decay": 0.0, "lr": 0.5}, [w])
    assert w.tolist() == torch.tensor([1.9]).tolist()
