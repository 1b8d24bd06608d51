"""A Transformer block: attention, cross-attention and feed-forward, each with its norm and residual."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.spec import Cost, Spec
from ..attention.mixer import Mixer, Pass, recomputed
from ..kv_cache.full import CrossState, InputState, LayerState
from ..layers import moe
from ..layers.dropout import dropout, stochastic_depth
from ..layers.feedforward import FeedForwardLayer
from ..layers.norm import LayerNorm, Norm
from ..positions.base import Position
from .placement import Norms, NormsOf, Parallel, Placement, PreNorm, Reversible


class Block(Spec, kind="block"):
    """One layer: attention, cross-attention and feed-forward in turn, each with its norm and residual connection.

    position:  positional encoding of this block's attention in place of the stack's; `none` for a layer without positions.
    attention_norm: the attention's norm in place of `norm`; `none` removes it (ModernBERT's first block).
    placement: where norms are applied and how the output of a sublayer joins the residual stream (`models.placement`).
    residual:  "none" removes the residual connection.

    The output of a sublayer goes through dropout, and is multiplied by `residual_multiplier` (Granite), by a trained vector
    initialized to `layer_scale` (LayerScale, Touvron et al. 2021) and by `drop_path` (`stochastic_depth`).
    """

    position: Position | None = None
    attention: Mixer
    cross: Mixer | None = None
    feedforward: FeedForwardLayer
    norm: Norm = LayerNorm()
    attention_norm: Norm | None = None
    placement: Placement = PreNorm()
    shared_norm: bool = False
    residual: Literal["add", "none"] = "add"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    layer_scale: float | None = Field(default=None, gt=0)
    residual_multiplier: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Block:
        self.placement.check(self.cross is not None, self.residual == "add")
        if self.shared_norm and not isinstance(self.placement, Parallel):
            raise ValueError("shared_norm belongs to placement='parallel', where one norm can serve both branches")
        if self.attention_norm is not None and isinstance(self.placement, Norms):
            raise ValueError("placement='norms' has its own norms; give them there, or leave out attention_norm")
        if isinstance(self.placement, Reversible) and isinstance(self.feedforward, moe.MixtureOfExperts):
            raise ValueError(
                "a reversible block recomputes activations up to rounding, and the router might then choose other experts; "
                "choose another placement, and `recompute` to save memory"
            )
        if self.drop_path and self.residual == "none":
            raise ValueError("drop_path needs a residual connection, and residual='none' has none; change one of them")
        return self

    def module(self, d_model: int, name: str = "") -> BlockModule:
        return BlockModule(self, d_model, name)

    def sublayers(self) -> list[str]:
        """Names of the sublayers in order, without sublayers of kind `none`, which have no norm and no residual
        either."""
        parts = {"attention": self.attention, "cross": self.cross, "feedforward": self.feedforward}
        return [name for name, part in parts.items() if part is not None and part.kind != "none"]

    def norms_of(self, sublayer: str) -> NormsOf:
        """The norms of one sublayer."""
        own = self.attention_norm if sublayer == "attention" else None
        return self.placement.norms(own or self.norm)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0, cross_pairs: int = 0) -> Cost:
        total = self.attention.cost(d_model, tokens, pairs) + self.feedforward.cost(d_model, tokens)
        if self.cross is not None:
            total += self.cross.cost(d_model, tokens, cross_pairs, memory)
        for i, name in enumerate(self.sublayers()):
            before, after, after_sum = self.norms_of(name)
            for norm in (None if self.shared_norm and i else before, after, after_sum):
                total += Cost() if norm is None else norm.cost(d_model, tokens)
        scales = 0 if self.layer_scale is None else len(self.sublayers())
        return total + Cost(scales * d_model, scales * d_model * tokens)


class BlockModule(nn.Module):
    """The module of `Block`. Norms have the names of their sublayers.

    `norm` is applied to the input of a sublayer or, without such a norm, to the sum with the residual stream.
    `norm_after` is applied to the output of a sublayer, and `norm_sum` to the sum if there is a norm of the input too.
    """

    def __init__(self, spec: Block, d_model: int, name: str) -> None:
        super().__init__()
        self.placement, self.residual, self.dropout = spec.placement, spec.residual == "add", spec.dropout
        self.drop_path, self.multiplier, self.skip = spec.drop_path, spec.residual_multiplier, spec.placement.skip
        self.sublayers = spec.sublayers()
        self.attention = spec.attention.module(d_model, name=f"{name}.attention")
        self.cross = None if spec.cross is None else spec.cross.module(d_model, cross=True, name=f"{name}.cross")
        self.feedforward = spec.feedforward.module(d_model)
        norms = {name: spec.norms_of(name) for name in self.sublayers}

        def each(place: str, names: list[str]) -> nn.ModuleDict:
            chosen: dict[str, Norm | None] = {name: getattr(norms[name], place) for name in names}
            return nn.ModuleDict({name: norm.module(d_model) for name, norm in chosen.items() if norm is not None})

        self.norms_sum = spec.placement.norms(spec.norm).before is None  # then `norm` is applied to the sum
        before = self.sublayers[:1] if spec.shared_norm else self.sublayers
        self.norm = each("sum", self.sublayers) if self.norms_sum else each("before", before)
        self.norm_after = each("after", self.sublayers)
        self.norm_sum = nn.ModuleDict() if self.norms_sum else each("sum", self.sublayers)
        scaled = self.sublayers if spec.layer_scale is not None else []
        self.scale = nn.ModuleDict({s: LayerScale(d_model, spec.layer_scale or 1.0) for s in scaled})
        plain = self.residual and self.skip == self.multiplier == 1.0 and not scaled and not self.drop_path
        self.drops_and_adds = bool(plain and self.dropout)  # in training, in one pass

    def forward(
        self,
        x: Float[Tensor, "B T M"],
        run: Pass,
        state: LayerState | None = None,
        cross_state: CrossState | None = None,
    ) -> Float[Tensor, "B T M"]:
        """Apply the layer. For each sublayer f in turn, x ← norm_sum(α · x + f(norm(x))), with the norms that the placement
        has; other placements define their own `forward`.

        A placement with several residual streams takes and returns (streams, B, T, M).
        """
        states = {"attention": state, "cross": cross_state}
        if not self.placement.in_turn:
            return self.placement.forward(self, x, run, states)
        for name in self.sublayers:
            y = self.norm[name](x) if not self.norms_sum and name in self.norm else x
            if self.training and self.drops_and_adds:
                x = self.normalized(name, dropout(self.applied(name, y, run, states.get(name)), self.dropout, added=x))
            else:
                x = self.add(name, x, self.sublayer(name, y, run, states.get(name)))
        return x

    def before(self, name: str, x: Tensor, without: Tensor) -> Tensor:
        """Normalize the input of a sublayer; without such a norm return `without`."""
        return self.norm[name](x) if not self.norms_sum and name in self.norm else without

    def branch(self, name: str, x: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """Normalize x and apply a sublayer: the summand of the residual stream."""
        return self.sublayer(name, self.before(name, x, x), run, state)

    def sublayer(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """Apply a sublayer, its output norm, dropout, scales and stochastic depth to a normalized input."""
        y = self.applied(name, y, run, state)
        y = dropout(y, self.dropout) if self.training and self.dropout else y
        y = y if self.multiplier == 1.0 else y * self.multiplier
        y = self.scale[name](y) if name in self.scale else y
        return stochastic_depth(y, self.drop_path, run.layout) if self.training and self.drop_path else y

    def applied(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """Apply a sublayer and its output norm to a normalized input."""
        part = getattr(self, name)
        if run.split is not None:
            y = run.split.apply(part, y, run, mixes=name != "feedforward")
        elif name == "feedforward":
            y = part(y, run) if getattr(part, "takes_pass", False) else part(y)
        else:
            y = recomputed(part, y, run, state) if isinstance(state, InputState) else part(y, run, state)
        return self.norm_after[name](y) if name in self.norm_after else y

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """Add y to the residual stream x, and normalize the sum if the placement does."""
        if self.residual:
            y = x + y if self.skip == 1.0 else self.skip * x + y
        return self.normalized(name, y)

    def normalized(self, name: str, total: Tensor) -> Tensor:
        """Normalize the sum of the residual stream and a sublayer's output, if the placement does."""
        norm = self.norm if self.norms_sum else self.norm_sum
        return norm[name](total) if name in norm else total


class LayerScale(nn.Module):
    """x · γ with a trained γ for each coordinate, initialized to `start` (LayerScale, Touvron et al. 2021)."""

    def __init__(self, d_model: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(d_model))

    def initial(self, name: str) -> float:
        return self.start

    def forward(self, x: Float[Tensor, "B T M"]) -> Float[Tensor, "B T M"]:
        return x * self.weight
