"""A Transformer block: attention, cross-attention and feed-forward, each with its norm and residual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.feedforward import FeedForwardLayer
from ..core.norm import LayerNorm, Norm
from ..core.spec import Cost, Spec
from ..core.state import CrossState, KeyValueState
from .attention import Mixer, Pass

Placement = Literal["pre", "post", "sandwich", "parallel"]


class Block(Spec, kind="block"):
    """One layer. With f each of attention, cross-attention, feed-forward in turn, and d for dropout:

    post:      x ← norm(x + d(f(x)))            (Vaswani et al. 2017)
    pre:       x ← x + d(f(norm(x)))            (Xiong et al. 2020; GPT-2, Llama)
    sandwich:  x ← x + d(norm₂(f(norm₁(x))))    (Ding et al. 2021; Gemma 2)
    parallel:  x ← x + d(attention(norm(x))) + d(feedforward(norm₂(x)))   (GPT-J, NeoX); norm₂ = norm if `shared_norm`

    `residual` "none" leaves x + out of it all.
    """

    attention: Mixer
    cross: Mixer | None = None
    feedforward: FeedForwardLayer
    norm: Norm = LayerNorm()
    placement: Placement = "pre"
    shared_norm: bool = False
    residual: Literal["add", "none"] = "add"
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Block:
        if self.placement == "parallel" and self.cross is not None:
            raise ValueError("a parallel block has no place for cross-attention; choose pre, post or sandwich")
        if self.shared_norm and self.placement != "parallel":
            raise ValueError("shared_norm belongs to placement='parallel', where one norm can serve both branches")
        return self

    def module(self, d_model: int, name: str = "") -> BlockModule:
        return BlockModule(self, d_model, name)

    def sublayers(self) -> list[str]:
        """What a block does, in order; a part that is `none` has no norm and no residual either."""
        parts = {"attention": self.attention, "cross": self.cross, "feedforward": self.feedforward}
        return [name for name, part in parts.items() if part is not None and part.kind != "none"]

    def n_norms(self) -> int:
        count = len(self.sublayers())
        return {"sandwich": 2 * count, "parallel": min(count, 1) if self.shared_norm else count}.get(
            self.placement, count
        )

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0, cross_pairs: int = 0) -> Cost:
        total = self.attention.cost(d_model, tokens, pairs) + self.feedforward.cost(d_model, tokens)
        if self.cross is not None:
            total += self.cross.cost(d_model, tokens, cross_pairs, memory)
        for _ in range(self.n_norms()):
            total += self.norm.cost(d_model, tokens)
        return total


class BlockModule(nn.Module):
    """The module of `Block`. Norms are named for the sublayer that they stand before (or after, when post)."""

    def __init__(self, spec: Block, d_model: int, name: str) -> None:
        super().__init__()
        self.placement, self.residual, self.dropout = spec.placement, spec.residual == "add", spec.dropout
        self.sublayers = spec.sublayers()
        self.attention = spec.attention.module(d_model, name=f"{name}.attention")
        self.cross = None if spec.cross is None else spec.cross.module(d_model, cross=True, name=f"{name}.cross")
        self.feedforward = spec.feedforward.module(d_model)
        normed = self.sublayers[:1] if spec.shared_norm else self.sublayers
        self.norm = nn.ModuleDict({s: spec.norm.module(d_model) for s in normed})
        after = self.sublayers if spec.placement == "sandwich" else []
        self.norm_after = nn.ModuleDict({s: spec.norm.module(d_model) for s in after})

    def forward(
        self,
        x: Float[Tensor, "B T M"],
        run: Pass,
        state: KeyValueState | None = None,
        cross_state: CrossState | None = None,
    ) -> Float[Tensor, "B T M"]:
        def apply(name: str, y: Tensor) -> Tensor:
            if name == "attention":
                return self.attention(y, run, state)
            if name == "cross":
                assert self.cross is not None
                return self.cross(y, run, cross_state)
            return self.feedforward(y)

        if self.placement == "parallel":
            return self._parallel(x, apply)
        for name in self.sublayers:
            if self.placement == "post":
                x = self.norm[name](self._add(x, apply(name, x)))
                continue
            y = apply(name, self.norm[name](x))
            x = self._add(x, self.norm_after[name](y) if name in self.norm_after else y)
        return x

    def _parallel(self, x: Tensor, apply: Callable[[str, Tensor], Tensor]) -> Tensor:
        normed, out = x, x if self.residual else torch.zeros_like(x)
        for name in self.sublayers:
            normed = self.norm[name](x) if name in self.norm else normed
            out = out + F.dropout(apply(name, normed), self.dropout, self.training)
        return out

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        y = F.dropout(y, self.dropout, self.training)
        return x + y if self.residual else y
