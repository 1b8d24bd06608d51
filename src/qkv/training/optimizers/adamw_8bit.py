"""AdamW with its state in eight bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from .adamw import AdamW, EagerAdamW, fusable
from .base import Groups, split
from .dynamic_quantization import dequantize, quantize
from .parameter_groups import embedding_parameters
from .state import Combined, Group, Stateful, counter, shrink

# How many numbers are unpacked at once, so little memory is needed beside the state: as many as a CPU's cache holds,
# on other devices enough to keep them busy.
CHUNKS = {"cpu": 2**16, "other": 2**24}


class AdamW8bit(AdamW, kind="adamw-8bit"):
    """AdamW with its two moments stored in a byte each, block-wise (Dettmers et al. 2022): 2 bytes per parameter, not 8.

    Each step unpacks the moments, updates and uses them like AdamW, and packs them again: every `block` numbers are divided
    by their largest and rounded to the nearest of 256 values over seven decades. A second moment above 0 never
    becomes 0, which would make the next steps huge (Li, Chen & Zhu 2023).

    min_size:   parameters with fewer numbers keep their moments in float32, which takes little memory.
    embeddings: also pack the moments of embedding tables. Their gradients are uneven, and the paper leaves them out.
    """

    elementwise: ClassVar[bool] = False  # numbers share the scale of their block

    block: Annotated[int, Field(ge=16, le=16384)] = 256
    min_size: Annotated[int, Field(ge=0)] = 4096
    embeddings: bool = False

    @property
    def state_bytes(self) -> tuple[float, float]:
        packed = 2.0 + 8.0 / self.block
        return packed, packed if self.embeddings else 8.0

    def inseparable(self, model: nn.Module, cuts: Mapping[nn.Parameter, int]) -> set[nn.Parameter]:
        return self._packed(model) & set(cuts)

    def _packed(self, model: nn.Module) -> set[nn.Parameter]:
        """The parameters whose moments are packed."""
        tables = set() if self.embeddings else embedding_parameters(model)
        return {p for p in model.parameters() if p.numel() >= self.min_size and p.is_contiguous()} - tables

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        packed, others = split(groups, self._packed(model))
        fused = fusable(model) or None
        parts: list[torch.optim.Optimizer] = []
        if packed:
            parts.append(PackedAdamW(packed, lr=self.lr, betas=self.betas, eps=self.eps, block=self.block))
        if others:
            parts.append(EagerAdamW(others, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused))
        return Combined(*parts)


class PackedAdamW(Stateful):
    """The optimizer object of `AdamW8bit`, for its large parameters."""

    def initial(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        state = {"step": counter()}
        for name, signed in (("exp_avg", True), ("exp_avg_sq", False)):
            state[name], state[f"{name}_max"] = _zeros(parameter, group["block"], signed)
        return state

    def move(self, group: Group, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        shrink(group, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            state = self.state[parameter]
            state["step"] += 1
            w, g = parameter.view(-1), gradient.reshape(-1)
            chunk = CHUNKS.get(w.device.type, CHUNKS["other"]) // group["block"] * group["block"]
            for start in range(0, w.numel(), chunk):
                self._move(group, state, w[start : start + chunk], g[start : start + chunk], start)

    def _move(self, group: Group, state: dict[str, Tensor], w: Tensor, g: Tensor, start: int) -> None:
        """One step of the weights `w` that begin at `start`, a multiple of the block."""
        block, (beta1, beta2), step = group["block"], group["betas"], float(state["step"])
        here = slice(start, start + len(w)), slice(start // block, start // block + math.ceil(len(w) / block))
        g = g.float()
        moments = []
        for name, signed, seen, beta in (("exp_avg", True, g, beta1), ("exp_avg_sq", False, g * g, beta2)):
            values, largest = state[name][here[0]], state[f"{name}_max"][here[1]]
            moment = dequantize(values, largest, block, signed).lerp_(seen, 1.0 - beta)
            packed = quantize(moment, block, signed)
            values.copy_(packed[0])
            largest.copy_(packed[1])
            moments.append(moment)
        mean, square = moments
        root = square.sqrt_().div_(math.sqrt(1.0 - beta2**step)).add_(group["eps"])
        w.addcdiv_(mean, root, value=-group["lr"] / (1.0 - beta1**step))


def _zeros(parameter: Tensor, block: int, signed: bool) -> tuple[Tensor, Tensor]:
    return quantize(torch.zeros(parameter.numel(), device=parameter.device), block, signed)
