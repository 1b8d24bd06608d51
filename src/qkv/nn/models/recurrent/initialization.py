"""Uniform initialization, as of early recurrent models."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from ..initialization import Draw, Initialization, initial_value


class Uniform(Initialization, kind="uniform"):
    """U(±bound) for every parameter, biases too (Sutskever et al. 2014, §3.4: 0.08; Luong et al. 2015, §4.1: 0.1)."""

    bound: float = Field(default=0.08, gt=0)

    def draw(self, module: nn.Module, path: str, value: Tensor, n_layers: int) -> Draw:
        value_set = initial_value(module, path.rpartition(".")[2])
        return ("uniform", self.bound) if value_set is None else ("constant", value_set)
