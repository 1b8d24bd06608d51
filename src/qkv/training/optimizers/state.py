"""Base classes of optimizer objects: state created at construction, and several optimizers combined into one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Group = dict[str, Any]


def eager(method: Callable[..., Any]) -> Any:
    """A method of PyTorch's optimizers without what `torch.compile` needs around it, whose first call imports
    `torch._dynamo` for a second."""
    return inspect.unwrap(method)


class Eager(torch.optim.Optimizer):
    """An optimizer that makes all its state when it is made itself, so it is known what belongs to it.

    A state is loaded into the tensors that are there, each with its own type, device and shape; PyTorch's way of loading
    would cast bytes to the type of the parameter.
    """

    add_param_group = eager(torch.optim.Optimizer.add_param_group)
    zero_grad = eager(torch.optim.Optimizer.zero_grad)
    state_dict = eager(torch.optim.Optimizer.state_dict)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` of an equal optimizer gave, into the tensors and groups that are there."""
        for mine, theirs in zip(self.param_groups, state_dict["param_groups"], strict=True):
            mine.update({key: value for key, value in theirs.items() if key != "params"})
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, state in state_dict["state"].items():
            for key, value in state.items():
                self.state[parameters[index]][key].copy_(value)


class Stateful(Eager):
    """An optimizer that says how each parameter's state begins, and how one group of parameters moves."""

    def __init__(self, groups: list[Group], **defaults: Any) -> None:
        super().__init__(groups, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = self.initial(parameter, group)

    def initial(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        """The state of a parameter before its first step."""
        raise NotImplementedError

    def move(self, group: Group, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """One step of the parameters of a group that have a gradient. There is at least one."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moving:
                self.move(group, moving, [parameter.grad for parameter in moving])
        return loss


class Combined(Eager):
    """Several optimizers, each over its own parameters, as one: their groups and states together, one step.

    The groups and states are the parts' own objects, so a learning rate set here is set there. Without parts, it updates
    nothing.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        groups = [group for part in parts for group in part.param_groups]
        super().__init__(groups or [{"params": [], "param_names": [], "lr": 0.0}], {})
        self.parts = parts
        for part in parts:
            self.state.update(part.state)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part in self.parts:
            part.step()
        return loss


def counter() -> Tensor:
    """A count of steps, kept on the host, where it is read."""
    return torch.zeros((), dtype=torch.float32)


def shrink(group: Group, parameters: list[Tensor]) -> None:
    """Decoupled weight decay, w ← (1 − lr · λ) w."""
    if group["weight_decay"]:
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
