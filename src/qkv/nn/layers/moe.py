"""Mixture of experts (MoE): a feed-forward layer in which a router picks a few experts for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.device import KeepsDtype
from ...core.extras import Extra, Extras, Record
from ...core.layout import Layout
from ...core.ranks import current, idle
from ...core.spec import Cost
from .dropout import dropout, own_draws
from .feedforward import ACTIVATIONS, Activation, FeedForwardLayer, NoFeedForward
from .grouped_linear import GroupedLinear
from .linear import Linear
from .losses import at_least_fp32
from .moe_dispatch import Dispatch, combine, count, dispatch, spread

Score = Literal["softmax", "top-k-softmax", "sigmoid"]
Balance = Literal["switch", "gshard", "mixtral", "none"]


class MixtureOfExperts(FeedForwardLayer, kind="moe"):
    """y = Σ_{e in the top k} g_e(x) · expert_e(x), and a shared layer that every token uses (Shazeer et al. 2017).

    Each expert is a bias-free feed-forward layer of width `d_ff`. Scores s = x W_r are fp32. `score` selects the gates g:

        softmax:        softmax(s), at the k largest        (Switch; with `renormalize` Mixtral; without it Qwen2-MoE)
        top-k-softmax:  softmax of the k largest s           (Shazeer et al. 2017)
        sigmoid:        sigmoid(s), at the k largest         (DeepSeek-V3)

    `renormalize` divides g by its sum over the k experts, by default if k > 1: for k = 1 it would always be 1, without a
    gradient for the router. `scale` multiplies g. In training, `jitter` ε multiplies the router's input by noise from
    [1 − ε, 1 + ε].

    Load balancing. f_e is expert e's share of the choices of real tokens, and P_e its mean probability. Training adds
    `balance_weight` · n_experts · Σ_e f_e P_e to the loss, which is smallest if experts are chosen equally often. `balance`
    selects f and P: "switch" counts all k choices (Fedus et al. 2021), "gshard" only first choices (Lepikhin et al. 2020),
    both in each layer. "mixtral" takes the means of f and P over all layers, with f as shares of tokens, which add up to k
    (the Hub). `bias_rate` γ balances without a loss: a bias b_e, which affects the choice but not g, moves by γ in each
    step, up if the expert had less than the mean load, down if it had more (Wang et al. 2024). None has no bias. `router_z`
    is the weight of the mean of log² Σ_e exp s_e, which keeps scores small (Zoph et al. 2022).

    `capacity` c limits an expert to c · k · tokens / n_experts choices in training, first choices before second ones.
    Further choices are dropped; their tokens keep only the residual. With None, and in evaluation, nothing is dropped.

    `shared` is any feed-forward layer; with `shared_gate` its output is multiplied by sigmoid(x w) (Qwen2-MoE).
    """

    n_experts: int = Field(gt=0)
    top_k: int = Field(default=2, gt=0)
    d_ff: int = Field(gt=0)
    activation: Activation = "silu"
    gated: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    score: Score = "softmax"
    renormalize: bool | None = None
    scale: float = Field(default=1.0, gt=0)
    jitter: float = Field(default=0.0, ge=0, lt=1)
    balance: Balance = "switch"
    balance_weight: float = Field(default=0.01, ge=0)
    bias_rate: float | None = Field(default=None, ge=0)
    router_z: float = Field(default=0.0, ge=0)
    capacity: float | None = Field(default=None, gt=0)
    shared: FeedForwardLayer = NoFeedForward()
    shared_gate: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> MixtureOfExperts:
        if self.top_k > self.n_experts:
            raise ValueError(f"top_k={self.top_k} is more than n_experts={self.n_experts}; take fewer")
        if self.shared_gate and isinstance(self.shared, NoFeedForward):
            raise ValueError("shared_gate needs a shared layer: give `shared`, or leave shared_gate out")
        return self

    def module(self, d_model: int) -> nn.Module:
        return Mixture(self, d_model)

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        expert = (3 if self.gated else 2) * d_model * self.d_ff
        router = d_model * (self.n_experts + self.shared_gate)
        idle = (self.n_experts - self.top_k) * expert
        flops = 2 * (self.top_k * expert + router) * tokens
        return Cost(self.n_experts * expert + router, flops, idle=idle) + self.shared.cost(d_model, tokens)


class ExpertPass(Protocol):
    """The members of a forward pass (`attention.mixer.Pass`) that the layer needs."""

    layout: Layout
    extras: Extras | None


class Routed(NamedTuple):
    """k experts for each of N tokens, with their gates; scores s and probabilities over all experts (fp32)."""

    experts: Int[Tensor, "N K"]
    gates: Float[Tensor, "N K"]
    scores: Float[Tensor, "N E"]
    probabilities: Float[Tensor, "N E"]


class RouterStatistics(NamedTuple):
    """Statistics of one layer over the real tokens of a pass, before any choice is dropped."""

    f: Float[Tensor, " E"]  # share of each expert, as `balance` counts it
    p: Float[Tensor, " E"]  # its mean probability
    z: Tensor  # mean of log² Σ exp s
    entropy: Tensor  # mean entropy of the probabilities, in nats
    dropped: Tensor  # share of choices beyond the capacity
    load: Float[Tensor, " E"]  # choices


class Router(KeepsDtype):
    """Selects experts. `weight` is (E, M); the optional `bias` (E) is not trained but updated by `Mixture.rebalance`."""

    bias: Tensor | None
    exact: ClassVar[tuple[str, ...]] = ("bias",)  # its steps are smaller than half precision tells apart

    def __init__(self, spec: MixtureOfExperts, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.renormalize = spec.top_k > 1 if spec.renormalize is None else spec.renormalize
        self.weight = nn.Parameter(torch.empty(spec.n_experts, d_model))
        bias = None if spec.bias_rate is None else torch.zeros(spec.n_experts, dtype=torch.float32)
        self.register_buffer("bias", bias)

    def forward(self, x: Float[Tensor, "N M"]) -> Routed:
        spec = self.spec
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training and spec.jitter:
            bounds = 1 - spec.jitter, 1 + spec.jitter
            wide = wide * torch.empty_like(wide).uniform_(*bounds, generator=own_draws(x.device))
        with torch.autocast(x.device.type, enabled=False):
            scores = wide @ self.weight.to(wide.dtype).T
        shares = scores.sigmoid() if spec.score == "sigmoid" else scores.softmax(-1)
        ranked = shares.detach() if self.bias is None else shares.detach() + self.bias.to(shares.dtype)
        experts = ranked.topk(spec.top_k, -1).indices
        if spec.score == "top-k-softmax":
            gates = scores.gather(1, experts).softmax(-1)
        else:
            gates = shares.gather(1, experts)
            if self.renormalize:
                gates = gates / gates.sum(-1, keepdim=True).clamp(min=1e-20)
        probabilities = shares / shares.sum(-1, keepdim=True) if spec.score == "sigmoid" else shares
        return Routed(experts, gates * spec.scale, scores, probabilities)


class Mixture(nn.Module):
    """The module of `MixtureOfExperts`."""

    takes_pass = True  # forward takes the `Pass` with layout and extras

    def __init__(self, spec: MixtureOfExperts, d_model: int) -> None:
        super().__init__()
        self.spec, self.activation = spec, ACTIVATIONS[spec.activation]
        n, wide = spec.n_experts, spec.d_ff
        self.router = Router(spec, d_model)
        self.gate = GroupedLinear(n, d_model, wide) if spec.gated else None
        self.up = GroupedLinear(n, d_model, wide)
        self.down = GroupedLinear(n, wide, d_model, into_residual=True)
        self.shared = None if isinstance(spec.shared, NoFeedForward) else spec.shared.module(d_model)
        self.shared_gate = Linear(d_model, 1, bias=False) if spec.shared_gate else None
        self.load: Tensor | None = None  # choices of each expert since the last update of the bias

    def forward(self, x: Float[Tensor, "B T M"], run: ExpertPass | None = None) -> Float[Tensor, "B T M"]:
        rows = x.flatten(0, -2)
        real = None
        if run is not None and run.layout.padding != "none":
            real = run.layout.valid.expand(x.shape[:-1]).flatten()
        routed = self.router(rows)
        plan = dispatch(routed.experts, self.spec.n_experts, real, self.spec.capacity if self.training else None)
        narrow = rows  # in autocast's dtype, before k copies are made
        if torch.is_autocast_enabled(rows.device.type):
            narrow = rows.to(torch.get_autocast_dtype(rows.device.type))
        out = combine(self.experts(spread(narrow, plan), plan.ends), routed.gates, plan)
        if self.training and run is not None and run.extras is not None:
            run.extras.add(self, self.record(routed, plan, real))
        return self.add_shared(rows, out).view_as(x)

    def experts(self, x: Float[Tensor, "R M"], ends: Int[Tensor, " E"]) -> Float[Tensor, "R M"]:
        """Apply each expert to its rows."""
        up = self.up(x, ends)
        hidden = self.activation(up) if self.gate is None else self.activation(self.gate(x, ends)) * up
        return self.down(dropout(hidden, self.spec.dropout, self.training), ends)

    def add_shared(self, x: Float[Tensor, "N M"], out: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        """Add the output of the shared layer, if there is one."""
        if self.shared is None:
            return out
        shared = self.shared(x)
        return out + (shared if self.shared_gate is None else self.shared_gate(x).sigmoid() * shared)

    # -- balance ------------------------------------------------------------------------------------------------

    def record(self, routed: Routed, plan: Dispatch, real: Bool[Tensor, " N"] | None) -> RouterStatistics:
        """Return the router's statistics of a pass, over the rows of all ranks of the step."""
        spec, p = self.spec, routed.probabilities
        weight = torch.ones_like(p[:, 0]) if real is None else real.to(p.dtype)
        weight = weight * 0.0 if idle() else weight
        choices = routed.experts[:, :1] if spec.balance == "gshard" else routed.experts
        log_z = routed.scores.logsumexp(-1)
        entropy = -(p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(-1).detach()
        scalars = torch.stack([weight.sum(), weight @ log_z.square(), weight @ entropy, plan.ends[-1].to(p.dtype)])
        counts = [count(chosen, weight, spec.n_experts) for chosen in (choices, routed.experts)]
        sums = torch.cat([scalars, *counts, weight @ p])
        n, z, entropies, kept = (sums := current().sum_with_gradient(sums))[:4]
        f, load, shares = sums[4:].split(spec.n_experts)
        n = n.clamp(min=1)
        f = f / n if spec.balance == "mixtral" else f / (n * choices.shape[1])
        dropped = 1 - kept / (n * spec.top_k)
        return RouterStatistics(f, shares / n, z / n, entropies.detach() / n, dropped.detach(), load.detach())

    @classmethod
    def auxiliary_losses(cls, records: Sequence[tuple[Self, Record]]) -> dict[str, Extra]:
        """Return balance loss and z-loss, and statistics: the largest load over the mean load, entropy, share dropped."""
        layers = [(layer.spec, RouterStatistics(*record)) for layer, record in records]
        for (layer, _), (_, stats) in zip(records, layers, strict=True):
            layer.add_load(stats)
        busiest = [stats.load.max() * spec.n_experts / stats.load.sum().clamp(min=1) for spec, stats in layers]
        terms = {"expert_load": Extra(_mean(busiest)), "router_entropy": Extra(_mean([s.entropy for _, s in layers]))}
        terms |= _balance(layers)
        if any(spec.router_z for spec, _ in layers):
            loss = torch.stack([spec.router_z * stats.z for spec, stats in layers]).sum()
            terms["router_z"] = Extra(_mean([stats.z.detach() for _, stats in layers]), loss)
        if any(spec.capacity is not None for spec, _ in layers):
            terms["expert_dropped"] = Extra(_mean([stats.dropped for _, stats in layers]))
        return terms

    @torch.no_grad()
    def add_load(self, stats: RouterStatistics) -> None:
        """Add up the loads of passes, for routers with a bias."""
        if self.router.bias is None or not self.spec.bias_rate:
            return
        if self.load is None:
            self.load = torch.zeros_like(stats.load)
        self.load += stats.load

    @torch.no_grad()
    def rebalance(self, empty: Tensor | None = None) -> None:
        """After each optimizer step: b_e ← b_e + γ · sign(mean load − load_e). Loads are summed over all ranks.

        empty: true if the step had nothing to learn from, and then nothing changes.
        """
        if self.router.bias is None or self.load is None or not self.spec.bias_rate:
            return
        change = self.spec.bias_rate * torch.sign(self.load.mean() - self.load).to(self.router.bias.dtype)
        self.router.bias += change if empty is None else change.masked_fill(empty, 0.0)
        self.load.zero_()


def _mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([at_least_fp32(value) for value in values]).mean()


def _balance(layers: Sequence[tuple[MixtureOfExperts, RouterStatistics]]) -> dict[str, Extra]:
    """Return n Σ_e f_e P_e of each layer, or of the means over layers that are balanced together."""
    values: list[Tensor] = []
    losses: list[Tensor] = []
    together: dict[tuple[int, float], list[RouterStatistics]] = {}
    for spec, stats in layers:
        if spec.balance == "mixtral":
            together.setdefault((spec.n_experts, spec.balance_weight), []).append(stats)
        elif spec.balance != "none":
            values.append(spec.n_experts * (stats.f * stats.p).sum())
            losses.append(spec.balance_weight * values[-1])
    for (n_experts, weight), group in together.items():
        f = torch.stack([stats.f for stats in group]).mean(0)
        p = torch.stack([stats.p for stats in group]).mean(0)
        values.append(n_experts * (f * p).sum())
        losses.append(weight * values[-1])
    return {"balance": Extra(_mean(values).detach(), torch.stack(losses).sum())} if values else {}
