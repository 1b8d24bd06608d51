"""A Transformer block: attention, cross-attention and feed-forward, each with its norm and residual."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..attention import (  # noqa: F401
    bigbird as block_sparse,
)
from ..attention.multi_head import Mixer, Pass, recomputed
from ..core.layout import Layout
from ..core.spec import Cost, Spec
from ..kv_cache.full import CrossState, InputState, LayerState
from ..layers import moe
from ..layers.dropout import dropout
from ..layers.feedforward import FeedForwardLayer
from ..layers.norm import LayerNorm, Norm
from ..patterns.documents import document_numbers
from ..positions.base import Position

Placement = Literal["pre", "post", "sandwich", "parallel", "reversible"]


class Block(Spec, kind="block"):
    """One layer. With f each of attention, cross-attention, feed-forward in turn, and d for dropout:

    post:      x ← norm(x + d(f(x)))            (Vaswani et al. 2017)
    pre:       x ← x + d(f(norm(x)))            (Xiong et al. 2020; GPT-2, Llama)
    sandwich:  x ← x + d(norm₂(f(norm₁(x))))    (Ding et al. 2021; Gemma 2)
    parallel:  x ← x + d(attention(norm(x))) + d(feedforward(norm₂(x)))   (GPT-J, NeoX); norm₂ = norm if `shared_norm`
    reversible: (x₁, x₂) ← (x₂, x₁ + d(f(norm(x₂))))   (Gomez et al. 2017; Reformer): two streams, and x is (2, B, T, M)

    `position` turns or biases this block's attention in place of the stack's scheme: `none` for a layer without positions.

    `residual` "none" leaves x + out of it all. d goes on with `layer_scale`, which multiplies by a trained vector that
    begins there (LayerScale, Touvron et al. 2021), and with `drop_path` (`stochastic_depth`).
    """

    position: Position | None = None
    attention: Mixer
    cross: Mixer | None = None
    feedforward: FeedForwardLayer
    norm: Norm = LayerNorm()
    placement: Placement = "pre"
    shared_norm: bool = False
    residual: Literal["add", "none"] = "add"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    layer_scale: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Block:
        if self.placement == "parallel" and self.cross is not None:
            raise ValueError("a parallel block has no place for cross-attention; choose pre, post or sandwich")
        if self.shared_norm and self.placement != "parallel":
            raise ValueError("shared_norm belongs to placement='parallel', where one norm can serve both branches")
        if self.placement == "reversible":
            self._check_reversible()
        if self.drop_path and self.residual == "none":
            raise ValueError("drop_path skips to the residual, and residual='none' has none; set one of them otherwise")
        return self

    def _check_reversible(self) -> None:
        if self.residual == "none":
            raise ValueError("a reversible block adds to its streams, and residual='none' does not; set one otherwise")
        if isinstance(self.feedforward, moe.MixtureOfExperts):
            raise ValueError(
                "a reversible block makes activations again, nearly the same, and experts might be chosen otherwise; choose "
                "another placement, and recompute for memory"
            )

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
        scales = 0 if self.layer_scale is None else len(self.sublayers())
        return total + Cost(scales * d_model, scales * d_model * tokens)


class BlockModule(nn.Module):
    """The module of `Block`. Norms are named for the sublayer that they stand before (or after, when post)."""

    def __init__(self, spec: Block, d_model: int, name: str) -> None:
        super().__init__()
        self.placement, self.residual, self.dropout = spec.placement, spec.residual == "add", spec.dropout
        self.drop_path = spec.drop_path
        self.sublayers = spec.sublayers()
        self.attention = spec.attention.module(d_model, name=f"{name}.attention")
        self.cross = None if spec.cross is None else spec.cross.module(d_model, cross=True, name=f"{name}.cross")
        self.feedforward = spec.feedforward.module(d_model)
        normed = self.sublayers[:1] if spec.shared_norm else self.sublayers
        self.norm = nn.ModuleDict({s: spec.norm.module(d_model) for s in normed})
        after = self.sublayers if spec.placement == "sandwich" else []
        self.norm_after = nn.ModuleDict({s: spec.norm.module(d_model) for s in after})
        scaled = self.sublayers if spec.layer_scale is not None else []
        self.scale = nn.ModuleDict({s: LayerScale(d_model, spec.layer_scale or 1.0) for s in scaled})

    def forward(
        self,
        x: Float[Tensor, "B T M"],
        run: Pass,
        state: LayerState | None = None,
        cross_state: CrossState | None = None,
    ) -> Float[Tensor, "B T M"]:
        """One layer. Where it is reversible, x and what comes out are both streams, (2, B, T, M)."""
        states = {"attention": state, "cross": cross_state}
        if self.placement == "reversible":
            x1, x2 = x.unbind()
            for name in self.sublayers:
                x1, x2 = x2, x1 + self.branch(name, x2, run, states.get(name))
            return torch.stack([x1, x2])
        if self.placement == "parallel":
            return self._parallel(x, run, state)
        for name in self.sublayers:
            if self.placement == "post":
                y = self._shaped(name, self._part(name, x, run, states.get(name)), run)
                x = self.norm[name](self._add(x, y))
            else:
                x = self._add(x, self.branch(name, x, run, states.get(name)))
        return x

    def branch(self, name: str, x: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """d(f(norm(x))) of one sublayer, with a second norm where sandwiched."""
        y = self._part(name, self.norm[name](x), run, state)
        return self._shaped(name, self.norm_after[name](y) if name in self.norm_after else y, run)

    def _part(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor:
        """The docstring's f."""
        if name == "attention":
            if isinstance(state, InputState):
                return recomputed(self.attention, y, run, state)
            return self.attention(y, run, state)
        if name == "cross":
            assert self.cross is not None
            return self.cross(y, run, state)
        return self.feedforward(y, run) if getattr(self.feedforward, "takes_pass", False) else self.feedforward(y)

    def _parallel(self, x: Tensor, run: Pass, state: LayerState | None) -> Tensor:
        normed, out = x, x if self.residual else torch.zeros_like(x)
        for name in self.sublayers:
            normed = self.norm[name](x) if name in self.norm else normed
            out = out + self._shaped(name, self._part(name, normed, run, state), run)
        return out

    def _shaped(self, name: str, y: Tensor, run: Pass) -> Tensor:
        """The docstring's d."""
        y = dropout(y, self.dropout, self.training)
        y = self.scale[name](y) if name in self.scale else y
        return stochastic_depth(y, self.drop_path, run.layout) if self.training and self.drop_path else y

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if self.residual else y


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


def stochastic_depth(y: Float[Tensor, "B T M"], p: float, layout: Layout) -> Float[Tensor, "B T M"]:
    """A branch without the samples which, each with probability p, skip it; 1/(1 − p) of the others.

    A sample is a row, or a document where several are packed into one. Growing what is kept in training stands in for
    shrinking in evaluation (Huang et al. 2016, who drop a branch for the whole batch). Draws are the default generator's.
    """
    run = document_numbers(layout)
    drawn = torch.rand(len(y), 1 if run is None else y.shape[1], device=y.device)
    drawn = drawn if run is None else drawn.gather(1, run.expand(len(y), -1))
    return y * (drawn >= p).to(y.dtype).div_(1 - p)[..., None]
