"""Importance of heads by trained gates with an L0 penalty (Voita et al. 2019, §5; Louizos, Welling & Kingma 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ..activations import intervene
from .units import AttentionLayer

BETA, LOW, HIGH = 2 / 3, -0.1, 1.1  # temperature, and the interval that is clipped to [0, 1]
_SHIFT = BETA * math.log(-LOW / HIGH)


class Gates(nn.Module):
    """One hard concrete gate for each head of a layer: z = clip(σ((ln u − ln(1 − u) + ln α) / β) (ζ − γ) + γ, 0, 1)."""

    def __init__(self, heads: int, start: float = 2.0) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.full((heads,), start))

    def sample(self) -> Tensor:
        """Draw gates, differentiably."""
        u = torch.rand_like(self.log_alpha).clamp(1e-6, 1 - 1e-6)
        noisy = torch.sigmoid((u.log() - (1 - u).log() + self.log_alpha) / BETA)
        return (noisy * (HIGH - LOW) + LOW).clamp(0, 1)

    def open_probability(self) -> Tensor:
        """P(z ≠ 0) = σ(ln α − β ln(−γ / ζ)): the L0 penalty of each gate."""
        return torch.sigmoid(self.log_alpha - _SHIFT)


def gate_importance(
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[nn.Module, Batch], Tensor],
    layers: Mapping[str, AttentionLayer],
    penalty: float = 0.05,
    lr: float = 0.05,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Tensor]:
    """Return P(gate is open) of each head, for each layer, after one step of training on each batch.

    `loss` is the mean loss of a batch. Gates are trained on loss + `penalty` · Σ P(z ≠ 0); the model's weights are frozen.
    Raises ValueError if there is no batch.
    """
    device = next(model.parameters()).device
    gates = {name: Gates(layer.n_heads).to(device) for name, layer in layers.items()}
    optimizer = torch.optim.Adam([gate.log_alpha for gate in gates.values()], lr=lr)
    trained = [p for p in model.parameters() if p.requires_grad]
    training = model.training
    model.eval()
    steps = 0
    generator_state = torch.random.get_rng_state()
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        torch.manual_seed(seed)
        for batch in batches:
            steps += 1
            drawn = {layer.site: _gated(gates[name].sample()) for name, layer in layers.items()}
            with torch.enable_grad(), intervene(model, drawn):
                total = loss(model, batch)
                total = total + penalty * torch.cat([gate.open_probability() for gate in gates.values()]).sum()
            optimizer.zero_grad()
            torch.autograd.backward(total)
            optimizer.step()
            if steps % 20 == 0:
                tell(f"gates, step {steps}")
    finally:
        torch.random.set_rng_state(generator_state)
        model.train(training)
        for parameter in trained:
            parameter.requires_grad_(True)
    if not steps:
        raise ValueError("there are no examples to train gates on; give data")
    return {name: gate.open_probability().detach().cpu() for name, gate in gates.items()}


def _gated(z: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda heads: heads * z.to(heads.dtype)[:, None]
