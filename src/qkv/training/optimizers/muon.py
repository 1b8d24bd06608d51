"""Muon: momentum made orthogonal, for the matrices inside a model; AdamW for everything else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..mixed_precision import bf16_instructions
from .adamw import EagerAdamW, fusable
from .base import Beta, Groups, Optimizer, Positive, split
from .parameter_groups import elsewhere, hidden_matrices
from .state import Combined, Group, Stateful, shrink

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's, the steepest at 0: singular values end between about 0.7 and 1.2
STACK = 2**25  # numbers that are made orthogonal at once: many small products as one, without much memory


class Muon(Optimizer, kind="muon"):
    """Momentum, orthogonalized, for the matrices of hidden layers (Jordan et al. 2024):

        m ← μm + (1 − μ) g,  u = (1 − μ) g + μm (`nesterov`) or m,  W ← W − lr · s · NS(u)

    NS, five steps of Newton and Schulz, maps a matrix U S Vᵀ close to U Vᵀ, so all directions learn at one rate. AdamW
    updates tables, heads, PyTorch's convolutions, norms and biases, with `betas` and `eps`. qkv's own convolutions
    (`layers.convolution`) are matrices, as in the authors' code.

    scale: "rms" is s = 0.2 · √max(m, n), with which updates have the usual size of AdamW's, so one lr and one
           weight decay serve both (Liu et al. 2025); "original" is s = √max(1, m/n), for lr near 0.02.
    adamw_lr: AdamW's own learning rate; lr if None.

    A stack of matrices (…, m, n) counts as separate matrices. State: one number per parameter, two for AdamW's parameters.
    """

    tuned_lr: ClassVar[float] = 2e-4

    momentum: Beta = 0.95
    nesterov: bool = True
    scale: Literal["rms", "original"] = "rms"
    adamw_lr: Positive | None = None
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: Positive = 1e-9

    @property
    def state_bytes(self) -> tuple[float, float]:
        return 4.0, 8.0

    def inseparable(self, model: nn.Module, cuts: Mapping[nn.Parameter, int]) -> set[nn.Parameter]:
        matrices = hidden_matrices(model)
        return {p for p, axis in cuts.items() if p in matrices and axis >= p.ndim - 2}

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        chosen = hidden_matrices(model)
        if not chosen and not elsewhere(model):
            raise ValueError("muon moves the matrices of hidden layers, and this model trains none; take adamw")
        matrices, others = split(groups, chosen)
        fused = fusable(model) or None
        ratio = 1.0 if self.adamw_lr is None else self.adamw_lr / self.lr
        others = [{**group, "lr": group["lr"] * ratio, "scale": group["scale"] * ratio} for group in others]
        if not matrices:
            return EagerAdamW(others, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused)
        muon = OrthogonalMomentum(matrices, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, rule=self.scale)
        if not others:
            return muon
        return Combined(muon, EagerAdamW(others, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused))


class OrthogonalMomentum(Stateful):
    """The optimizer object of `Muon`, for matrices and stacks of them."""

    def initial(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(parameter)}

    def move(self, group: Group, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1.0 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        shrink(group, parameters)
        shapes: dict[torch.Size, list[int]] = {}
        for i, parameter in enumerate(parameters):
            shapes.setdefault(parameter.shape, []).append(i)
        for shape, all_alike in shapes.items():
            rate = group["lr"] * size(group["rule"], *shape[-2:])
            at_once = max(1, STACK // shape.numel())
            for alike in (all_alike[i : i + at_once] for i in range(0, len(all_alike), at_once)):
                moved = orthogonal(torch.stack([updates[i] for i in alike]))
                torch._foreach_add_([parameters[i] for i in alike], list(moved), alpha=-rate)


def size(rule: str, rows: int, columns: int) -> float:
    """s of `Muon`: what an orthogonal update of a shape is multiplied by."""
    return 0.2 * math.sqrt(max(rows, columns)) if rule == "rms" else math.sqrt(max(1.0, rows / columns))


def orthogonal(x: Float[Tensor, "*N M K"], steps: int = 5) -> Float[Tensor, "*N M K"]:
    """Near U Vᵀ for x = U S Vᵀ: singular values of 0.7 to 1.2 instead of S.

    x ← x / ‖x‖, then x ← ax + (bA + cA²) x with A = x xᵀ, five times. In bf16 if that is native, which is exact enough
    for a method that doesn't converge; otherwise in x's dtype.
    """
    a, b, c = COEFFICIENTS
    wide = x.mT if x.shape[-2] > x.shape[-1] else x
    y = wide.reshape(-1, *wide.shape[-2:]).to(torch.bfloat16 if bf16_instructions(x.device) else x.dtype)
    y = y / torch.linalg.matrix_norm(y, keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    y = y.view(wide.shape).to(x.dtype)
    return y.mT if wide is not x else y
