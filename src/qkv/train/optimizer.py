"""How weights move along gradients: PyTorch's optimizers, with decay only where decay makes sense.

Weight decay is decoupled from the gradient (Loshchilov & Hutter 2019): w ← (1 − lr · λ) w, before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.embedding import TokenEmbedding
from ..core.positions import PositionModule
from ..core.spec import Spec

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]

# Where one fused kernel updates all weights and can be told on the device to leave them (`found_inf`).
FUSED_DEVICES = frozenset({"cpu", "cuda"})


class Optimizer(Spec, role="optimizer"):
    """lr: the learning rate that the schedule multiplies; weight_decay: λ; decay_embeddings: decay these too."""

    lr: Positive = 1e-3
    weight_decay: NonNegative = 0.01
    decay_embeddings: bool = False

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the model's trainable parameters, tied ones once."""
        raise NotImplementedError(f"{type(self).__name__} does not say how weights move")

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups of (name, parameter): those that decay, then those that don't."""
        decayed: list[tuple[str, nn.Parameter]] = []
        plain: list[tuple[str, nn.Parameter]] = []
        embeddings = set() if self.decay_embeddings else embedding_parameters(model)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                decays = parameter.ndim >= 2 and parameter not in embeddings
                (decayed if decays else plain).append((name, parameter))
        if not decayed and not plain:
            raise ValueError("the model has no trainable parameters")
        groups = [(decayed, self.weight_decay), (plain, 0.0)]
        return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


class AdamW(Optimizer, kind="adamw"):
    """Adam with decoupled decay (Loshchilov & Hutter 2019). The betas are the Transformer paper's."""

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    eps: Positive = 1e-9

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.groups(model), lr=self.lr, betas=self.betas, eps=self.eps, fused=fusable(model) or None
        )


class SGD(Optimizer, kind="sgd"):
    """Stochastic gradient descent with momentum μ: v ← μv + g, w ← w − lr · v (Nesterov: w ← w − lr · (g + μv))."""

    lr: Positive = 0.1
    weight_decay: NonNegative = 0.0
    momentum: Beta = 0.9
    nesterov: bool = False

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.nesterov and not self.momentum:
            raise ValueError("Nesterov's step needs a momentum above 0")
        return DecoupledSGD(
            self.groups(model),
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            fused=fusable(model) or None,
        )


class DecoupledSGD(torch.optim.SGD):
    """PyTorch's SGD with decoupled decay, which can be told on the device to leave the weights alone."""

    found_inf: Tensor | None = None

    def __init__(self, params: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            group["decoupled_decay"], group["weight_decay"] = group["weight_decay"], 0.0
            # PyTorch makes these at the first step, uninitialized where that step is skipped; zeros mean the same.
            for parameter in group["params"] if group["momentum"] else ():
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            if group["decoupled_decay"]:
                shrink = group["lr"] * group["decoupled_decay"]
                keep = 1.0 - (shrink if self.found_inf is None else shrink * (1.0 - self.found_inf))
                torch._foreach_mul_([p for p in group["params"] if p.grad is not None], keep)
        return super().step(closure)


def fusable(model: nn.Module) -> bool:
    """Whether every trainable parameter is where the fused kernels run."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return all(p.device.type in FUSED_DEVICES and p.is_floating_point() for p in trainable)


def embedding_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Tables that are looked up: tokens, positions, relative positions. A tied output layer shares its table's fate."""
    found: set[nn.Parameter] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding | TokenEmbedding | PositionModule):
            found.update(module.parameters(recurse=False))
    return found
