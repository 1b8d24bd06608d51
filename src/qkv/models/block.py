"""A Transformer block: attention, cross-attention and feed-forward, each with its norm and residual."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..attention.multi_head import Mixer, Pass, recomputed
from ..core.spec import Cost, Spec
from ..kv_cache.full import CrossState, InputState, LayerState
from ..layers import moe
from ..layers.dropout import dropout, stochastic_depth
from ..layers.feedforward import FeedForwardLayer
from ..layers.norm import LayerNorm, Norm
from ..positions.base import Position
from .placement import Parallel, Placement, PreNorm, Reversible


class Block(Spec, kind="block"):
    """One layer: attention, cross-attention and feed-forward in turn, each with its norm and residual connection.

    `placement` says where norms stand and how what a sublayer gives joins the residual stream (`models.placement`).

    `position` turns or biases this block's attention in place of the stack's scheme: `none` for a layer without positions.

    What a sublayer gives goes through dropout, and is multiplied by `residual_multiplier` (Granite), by a trained vector
    that begins at `layer_scale` (LayerScale, Touvron et al. 2021) and by `drop_path` (`stochastic_depth`). `residual`
    "none" leaves out the residual connection.
    """

    position: Position | None = None
    attention: Mixer
    cross: Mixer | None = None
    feedforward: FeedForwardLayer
    norm: Norm = LayerNorm()
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
        if isinstance(self.placement, Reversible) and isinstance(self.feedforward, moe.MixtureOfExperts):
            raise ValueError(
                "a reversible block computes activations again, nearly the same, and experts might be chosen otherwise; "
                "choose another placement, and recompute for memory"
            )
        if self.drop_path and self.residual == "none":
            raise ValueError("drop_path skips to the residual, and residual='none' has none; set one of them otherwise")
        return self

    def module(self, d_model: int, name: str = "") -> BlockModule:
        return BlockModule(self, d_model, name)

    def sublayers(self) -> list[str]:
        """What a block does, in order; a part that is `none` has no norm and no residual either."""
        parts = {"attention": self.attention, "cross": self.cross, "feedforward": self.feedforward}
        return [name for name, part in parts.items() if part is not None and part.kind != "none"]

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0, cross_pairs: int = 0) -> Cost:
        total = self.attention.cost(d_model, tokens, pairs) + self.feedforward.cost(d_model, tokens)
        if self.cross is not None:
            total += self.cross.cost(d_model, tokens, cross_pairs, memory)
        count = len(self.sublayers())
        before, *others = self.placement.norms(self.norm)
        for norm, times in (
            (before, min(count, 1) if self.shared_norm else count),
            *((norm, count) for norm in others),
        ):
            total += Cost() if norm is None else norm.cost(d_model, tokens) * times
        scales = 0 if self.layer_scale is None else count
        return total + Cost(scales * d_model, scales * d_model * tokens)


class BlockModule(nn.Module):
    """The module of `Block`. Norms are named for their sublayer: `norm` stands before it or, where nothing does, after the
    sum; `norm_after` stands after it; and `norm_sum` after the sum where there is a norm before it too."""

    def __init__(self, spec: Block, d_model: int, name: str) -> None:
        super().__init__()
        self.placement, self.residual, self.dropout = spec.placement, spec.residual == "add", spec.dropout
        self.drop_path, self.multiplier, self.skip = spec.drop_path, spec.residual_multiplier, spec.placement.skip
        self.sublayers = spec.sublayers()
        self.attention = spec.attention.module(d_model, name=f"{name}.attention")
        self.cross = None if spec.cross is None else spec.cross.module(d_model, cross=True, name=f"{name}.cross")
        self.feedforward = spec.feedforward.module(d_model)
        norms = spec.placement.norms(spec.norm)

        def each(norm: Norm | None, names: list[str]) -> nn.ModuleDict:
            return nn.ModuleDict({} if norm is None else {name: norm.module(d_model) for name in names})

        self.norms_sum = norms.before is None  # then `norm` is that of the sum
        before = self.sublayers[:1] if spec.shared_norm else self.sublayers
        self.norm = each(norms.sum, self.sublayers) if self.norms_sum else each(norms.before, before)
        self.norm_after = each(norms.after, self.sublayers)
        self.norm_sum = nn.ModuleDict() if self.norms_sum else each(norms.sum, self.sublayers)
        scaled = self.sublayers if spec.layer_scale is not None else []
        self.scale = nn.ModuleDict({s: LayerScale(d_model, spec.layer_scale or 1.0) for s in scaled})

    def forward(
        self,
        x: Float[Tensor, "B T M"],
        run: Pass,
        state: LayerState | None = None,
        cross_state: CrossState | None = None,
    ) -> Float[Tensor, "B T M"]:
        """One layer. Where its placement has several streams, x and what comes out are all of them, (streams, B, T, M)."""
        return self.placement.forward(self, x, run, {"attention": state, "cross": cross_state})

    def before(self, name: str, x: Tensor, without: Tensor) -> Tensor:
        """The norm of a sublayer's input; `without` where it has none."""
        return self.norm[name](x) if not self.norms_sum and name in self.norm else without

    def branch(self, name: str, x: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """What a sublayer adds to the residual stream."""
        return self.sublayer(name, self.before(name, x, x), run, state)

    def sublayer(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """The same, of an input that is normalized already."""
        y = self._part(name, y, run, state)
        y = dropout(self.norm_after[name](y) if name in self.norm_after else y, self.dropout, self.training)
        y = y if self.multiplier == 1.0 else y * self.multiplier
        y = self.scale[name](y) if name in self.scale else y
        return stochastic_depth(y, self.drop_path, run.layout) if self.training and self.drop_path else y

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """The residual stream x with y added to it."""
        if self.residual:
            y = x + y if self.skip == 1.0 else self.skip * x + y
        norm = self.norm if self.norms_sum else self.norm_sum
        return norm[name](y) if name in norm else y

    def _part(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        if name == "attention":
            if isinstance(state, InputState):
                return recomputed(self.attention, y, run, state)
            return self.attention(y, run, state)
        if name == "cross":
            assert self.cross is not None
            return self.cross(y, run, state)
        return self.feedforward(y, run) if getattr(self.feedforward, "takes_pass", False) else self.feedforward(y)


class LayerScale(nn.Module):
    """x · γ, with one γ for each coordinate that begins at `start`."""

    def __init__(self, d_model: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(d_model))

    def initial(self, name: str) -> float:
        return self.start

    def forward(self, x: Float[Tensor, "B T M"]) -> Float[Tensor, "B T M"]:
        return x * self.weight
