"""Norm placement and residual connections of a block: pre-norm, post-norm, sandwich, parallel, reversible, DeepNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from ...core.spec import Spec
from ..attention.mixer import Pass
from ..kv_cache.full import LayerState
from ..layers.norm import Norm

Stream = Float[Tensor, "B T M"] | Float[Tensor, "N B T M"]


class NormsOf(NamedTuple):
    """Norms of each sublayer: of its input, of its output, and of the sum with the residual stream."""

    before: Norm | None = None
    after: Norm | None = None
    sum: Norm | None = None


class Sublayers(Protocol):
    """The members of a block that placements use."""

    sublayers: list[str]
    residual: bool

    def before(self, name: str, x: Tensor, without: Tensor) -> Tensor: ...
    def sublayer(self, name: str, y: Tensor, run: Pass, state: LayerState | None = None) -> Tensor: ...
    def branch(self, name: str, x: Tensor, run: Pass, state: LayerState | None = None) -> Tensor: ...
    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor: ...


class Placement(Spec, role="placement"):
    """Base class of norm placements: where a block's norms are applied, and how its sublayers are connected.

    With f a sublayer: x ← sum(α · x + after(f(before(x)))), one sublayer after another. A subclass says which of the three
    norms there are, or defines `forward`, which sets `in_turn` to False. With several residual `streams`, x is
    (streams, B, T, M): `enter` makes the streams from the embeddings, and `leave` makes hidden states from the streams.
    """

    streams: ClassVar[int] = 1
    in_turn: ClassVar[bool] = True  # whether the block applies the equation above

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.in_turn = False

    def norms(self, norm: Norm) -> NormsOf:
        """Return the norms of each sublayer; `norm` is that of the block."""
        raise NotImplementedError

    @property
    def skip(self) -> float:
        """The factor α of the residual stream."""
        return 1.0

    def check(self, crosses: bool, adds: bool) -> None:
        """Raise ValueError if a block with cross-attention, or one without residual connections, can't have this kind."""

    def forward(self, block: Sublayers, x: Stream, run: Pass, states: Mapping[str, Any]) -> Stream:
        """Apply the block's sublayers. Only placements with another equation define it."""
        raise NotImplementedError(f"{type(self).__name__} has no `forward`; the block applies its sublayers in turn")

    def enter(self, x: Tensor) -> Tensor:
        return torch.stack([x] * self.streams)

    def leave(self, x: Tensor) -> Tensor:
        return x.mean(0)


class PreNorm(Placement, kind="pre"):
    """x ← x + f(norm(x)) (Xiong et al. 2020; GPT-2, Llama)."""

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(before=norm)


class PostNorm(Placement, kind="post"):
    """x ← norm(x + f(x)) (Vaswani et al. 2017; BERT)."""

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(sum=norm)


class ResidualPostNorm(Placement, kind="res-post"):
    """x ← x + norm(f(x)) (Swin V2, Liu et al. 2022; OLMo 2)."""

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(after=norm)


class Sandwich(Placement, kind="sandwich"):
    """x ← x + norm₂(f(norm₁(x))) (Ding et al. 2021; Gemma 2)."""

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(before=norm, after=norm)


class Norms(Placement, kind="norms"):
    """x ← sum(x + after(f(before(x)))): any of the three norms, each given here; the block's `norm` is not used."""

    before: Norm | None = None
    after: Norm | None = None
    sum: Norm | None = None

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(self.before, self.after, self.sum)


class DeepNorm(PostNorm, kind="deepnorm"):
    """x ← norm(α · x + f(x)) (Wang et al. 2022); the initialization `deepnorm` scales weights down by β.

    `deepnorm_constants` gives the paper's α and β; `preset("transformer", placement="deepnorm")` sets both.
    """

    alpha: float = Field(gt=0)

    @property
    def skip(self) -> float:
        return self.alpha


def deepnorm_constants(encoder_layers: int, decoder_layers: int) -> dict[str, tuple[float, float]]:
    """(α, β) of each stack for N encoder and M decoder layers, 0 for a missing stack (Wang et al. 2022, §3.3)."""
    n, m = encoder_layers, decoder_layers
    if n and m:
        depth = (n**4 * m) ** (1 / 16)
        return {"encoder": (0.81 * depth, 0.87 / depth), "decoder": ((3 * m) ** 0.25, (12 * m) ** -0.25)}
    return {"encoder" if n else "decoder": ((2 * (n + m)) ** 0.25, (8 * (n + m)) ** -0.25)}


class Parallel(Placement, kind="parallel"):
    """x ← x + attention(norm(x)) + feedforward(norm₂(x)) (GPT-J, NeoX); norm₂ = norm with the block's `shared_norm`."""

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(before=norm)

    def check(self, crosses: bool, adds: bool) -> None:
        if crosses:
            raise ValueError("a parallel block has no place for cross-attention; choose pre, post or sandwich")

    def forward(self, block: Sublayers, x: Stream, run: Pass, states: Mapping[str, Any]) -> Stream:
        normed, out = x, x if block.residual else torch.zeros_like(x)
        for name in block.sublayers:
            normed = block.before(name, x, normed)
            out = out + block.sublayer(name, normed, run, states.get(name))
        return out


class Reversible(Placement, kind="reversible"):
    """(x₁, x₂) ← (x₂, x₁ + f(norm(x₂))) (Gomez et al. 2017; Reformer): two residual
    streams; activations are recomputed from the outputs."""

    streams = 2

    def norms(self, norm: Norm) -> NormsOf:
        return NormsOf(before=norm)

    def check(self, crosses: bool, adds: bool) -> None:
        if not adds:
            raise ValueError("a reversible block adds to its streams, and residual='none' does not; change one of them")

    def forward(self, block: Sublayers, x: Stream, run: Pass, states: Mapping[str, Any]) -> Stream:
        x1, x2 = x.unbind()
        for name in block.sublayers:
            x1, x2 = x2, x1 + block.branch(name, x2, run, states.get(name))
        return torch.stack([x1, x2])
