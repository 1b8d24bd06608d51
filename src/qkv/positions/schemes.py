"""Where things are: position schemes. Each offers any of `embed` (added to the input), `rotate` (applied to queries and
keys) and `bias` (added to the scores).

A scheme is a spec; the module that it makes belongs to a stack and serves every layer in it. Tables are computed from
positions in fp32 at each pass, so that nothing has to be stored, and any position is as good as any other.
"""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.layout import Grid, Layout, View
from ..core.spec import Spec
from ..patterns.documents import document_lengths
from .bias import Bias
from .rope_scaling import NoScaling, Scaling, Turn


class Widths(NamedTuple):
    """What a position module needs to know of its stack."""

    d_model: int
    n_heads: int
    d_head: int
    max_positions: int | None
    bidirectional: bool = True
    grid: Grid | None = None  # of the image that the stack reads


Tables = tuple[Tensor, Tensor]  # cos and sin, (B or 1, T, 1, R/2)


class Position(Spec, role="position"):
    """A position scheme. `module(widths)` gives what computes it; `n_parameters` what it adds to a model."""

    text: ClassVar[str]  # the canonical JSON, made once: what a custom operator is given.

    def model_post_init(self, context: Any) -> None:
        # Straight into the instance's dictionary, where a graph compiler finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)

    def module(self, widths: Widths) -> PositionModule:
        return PositionModule()

    def n_parameters(self, widths: Widths) -> int:
        return 0

    # A scheme with a bias defines `bias`, which tiled kernels call on tiles. One that is trained may define `bias_grad`
    # too, the gradients of its tensors from those of a tile's scores; without it the bias is made whole.
    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no bias")

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no bias_grad")

    @property
    def has_bias_grad(self) -> bool:
        return type(self).bias_grad is not Position.bias_grad


class PositionModule(nn.Module):
    """The off value of all three: nothing is added, nothing turns, nothing is biased."""

    max_positions: int | None = None  # the positions it is defined for; None is all

    def embed(self, layout: Layout) -> Float[Tensor, "B T M"] | None:
        """What to add to the embeddings."""
        return None

    def tables(self, layout: Layout) -> Tables | None:
        """cos and sin for `rotate`, made once per pass."""
        return None

    def rotate(self, x: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        return x

    def bias(self, device: torch.device | None = None) -> Bias | None:
        """What to add to the scores of every layer, with its constants on `device`."""
        return None


class NoPosition(Position, kind="none"):
    """No positions at all: attention is then permutation equivariant (and a causal decoder still learns some order)."""


# -- added to the input ------------------------------------------------------------------------------------------------


class Sinusoidal(Position, kind="sinusoidal"):
    """PE(p, 2i) = sin(p · base^(−2i/d)), PE(p, 2i+1) = cos(p · base^(−2i/d)) (Vaswani et al. 2017, §3.5).

    `arrangement` "interleaved" alternates sines and cosines as the paper writes it, "concatenated" puts all sines first
    (tensor2tensor, Marian). With `rates` "tensor2tensor" the exponent is −i/(d/2 − 1) in place of −2i/d, as the paper's own
    code has it, so that the slowest wave is exactly `base` times the fastest. `offset` is added to every position.
    """

    base: float = Field(default=10000.0, gt=1)
    rates: Literal["paper", "tensor2tensor"] = "paper"
    arrangement: Literal["interleaved", "concatenated"] = "interleaved"
    offset: int = 0

    def module(self, widths: Widths) -> PositionModule:
        if widths.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, not {widths.d_model}")
        return SinusoidalEmbedding(self, widths.d_model)

    def encode(self, positions: Tensor, d_model: int) -> Tensor:
        """(…,) positions → (…, d_model) in fp32."""
        steps = d_model / 2 if self.rates == "paper" else max(d_model / 2 - 1, 1)
        rate = torch.exp(torch.arange(0, d_model // 2, device=positions.device) * (-math.log(self.base) / steps))
        angle = (positions + self.offset).float()[..., None] * rate
        if self.arrangement == "concatenated":
            return torch.cat([angle.sin(), angle.cos()], -1)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class SinusoidalEmbedding(PositionModule):
    def __init__(self, spec: Sinusoidal, d_model: int) -> None:
        super().__init__()
        self.spec, self.d_model = spec, d_model

    def embed(self, layout: Layout) -> Tensor:
        return self.spec.encode(layout.positions[..., 0].clamp(min=0), self.d_model)


class Learned(Position, kind="learned"):
    """One trained vector for each position (Gehring et al. 2017; BERT, GPT-2). Defined up to the stack's max_positions.

    `offset` rows stand before position 0 (BART and RoBERTa keep two).
    """

    offset: int = Field(default=0, ge=0)

    def module(self, widths: Widths) -> PositionModule:
        if widths.max_positions is None:
            raise ValueError("learned positions need max_positions, the longest context that the table is made for")
        return LearnedEmbedding(self, widths.d_model, widths.max_positions)

    def n_parameters(self, widths: Widths) -> int:
        return ((widths.max_positions or 0) + self.offset) * widths.d_model


class LearnedEmbedding(PositionModule):
    def __init__(self, spec: Learned, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.offset, self.max_positions = spec.offset, max_positions
        self.weight = nn.Parameter(torch.empty(max_positions + spec.offset, d_model))

    def embed(self, layout: Layout) -> Tensor:
        return nn.functional.embedding(layout.positions[..., 0].clamp(min=0) + self.offset, self.weight)


# -- turning queries and keys --------------------------------------------------------------------------------------------


class Rotary(Position, kind="rotary"):
    """Pairs of coordinates turn by p · base^(−2i/R), so that scores depend on distance only (Su et al. 2021, RoFormer).

    The first R = `fraction` · d_head coordinates are turned. `pairs` "half" pairs coordinate i with i + R/2 (NeoX,
    Llama in the Hub's layout), "interleaved" pairs 2i with 2i + 1 (the paper, GPT-J). `scaling` changes the rates for
    contexts longer than those of training (`positions.rope_scaling`). Angles and products are fp32.
    """

    base: float = Field(default=10000.0, gt=1)
    pairs: Literal["half", "interleaved"] = "half"
    fraction: float = Field(default=1.0, gt=0, le=1)
    scaling: Scaling = NoScaling()

    def width(self, d_head: int) -> int:
        width = int(d_head * self.fraction)
        if width % 2 or width == 0:
            raise ValueError(
                f"rotary positions turn pairs: fraction {self.fraction} of d_head {d_head} is {width} coordinates, "
                "which has to be even and above 0"
            )
        return width

    def module(self, widths: Widths) -> PositionModule:
        return RotaryTurn(self, self.width(widths.d_head))


class RotaryTurn(PositionModule):
    def __init__(self, spec: Rotary, width: int) -> None:
        super().__init__()
        self.turn, self.scaling, self.interleaved = Turn(spec.base, width), spec.scaling, spec.pairs == "interleaved"
        self.width, self.magnitude = width, spec.scaling.magnitude()
        spec.scaling.check(self.turn)

    def tables(self, layout: Layout) -> Tables:
        length = document_lengths(layout) if self.scaling.by_length else None
        rates = self.scaling.rates(self.turn, layout.device, length)
        angle = (layout.positions[..., 0].clamp(min=0).float()[..., None] * rates)[:, :, None]
        cos, sin = angle.cos(), angle.sin()
        return (cos, sin) if self.magnitude == 1.0 else (cos * self.magnitude, sin * self.magnitude)

    def rotate(self, x: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        cos, sin = tables
        if x.dtype == torch.float64:
            cos, sin = cos.double(), sin.double()
        turned, kept = x[..., : self.width], x[..., self.width :]
        if self.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            out = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            out = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([out.to(x.dtype), kept], -1) if kept.shape[-1] else out.to(x.dtype)


# -- biasing the scores --------------------------------------------------------------------------------------------------


class ALiBi(Position, kind="alibi"):
    """Scores fall with distance: s(q, k) − m_h · |q − k|, one slope m_h for each head (Press et al. 2022).

    For n = 2^a heads the slopes are 2^(−max·1/n), 2^(−max·2/n) … with max = `bias_max` = 8; for other n, those of the
    power of two below, then every second one of the power above, as the paper's code has it.

    `scale` multiplies them all (Falcon: 1/√d_head). With `precision` "bfloat16" m_h and the positions are rounded to it, and
    so is m_h · p before differences are taken, as Falcon was trained.
    """

    bias_max: float = Field(default=8.0, gt=0)
    scale: float = Field(default=1.0, gt=0)
    precision: Literal["float32", "bfloat16"] = "float32"

    def slopes(self, n_heads: int) -> list[float]:
        def geometric(n: int) -> list[float]:
            return [2.0 ** (-self.bias_max * (i + 1) / n) for i in range(n)]

        below = 1 << (n_heads.bit_length() - 1)
        return geometric(below) + geometric(2 * below)[0::2][: n_heads - below]

    def module(self, widths: Widths) -> PositionModule:
        return ALiBiBias(self, widths.n_heads)

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        slopes = tensors[0][:, None, None]
        if self.precision == "float32":
            return -self.scale * slopes * (q.position - k.position).abs().to(slopes.dtype).unsqueeze(-3)
        q_fall, k_fall = (slopes.bfloat16() * at.bfloat16().unsqueeze(-3) for at in (q.position, k.position))
        return -self.scale * (q_fall.to(slopes.dtype) - k_fall.to(slopes.dtype)).abs()

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (None,)  # the slopes are not trained


class ALiBiBias(PositionModule):
    """Slopes are made from the spec at each pass, so that no checkpoint has to carry them."""

    def __init__(self, spec: ALiBi, n_heads: int) -> None:
        super().__init__()
        self.spec, self.slopes = spec, spec.slopes(n_heads)

    def bias(self, device: torch.device | None = None) -> Bias:
        return Bias(self.spec, (torch.tensor(self.slopes, dtype=torch.float32, device=device),))


class T5Buckets(Position, kind="t5"):
    """A learned scalar for each head and bucket of relative position k − q (Raffel et al. 2020, §2.1).

    Half of the buckets are single distances, the rest widen logarithmically up to `max_distance`, beyond which all share
    the last. Bidirectional stacks split the buckets between past and future; None means: as the stack is.
    """

    buckets: int = Field(default=32, ge=4)
    max_distance: int = Field(default=128, ge=2)
    bidirectional: bool | None = None

    @model_validator(mode="after")
    def _room_to_widen(self) -> T5Buckets:
        single = self.buckets // 2 if self.bidirectional is False else self.buckets // 4
        if self.max_distance <= single:
            raise ValueError(f"max_distance={self.max_distance} has to be above the {single} single-distance buckets")
        return self

    def module(self, widths: Widths) -> PositionModule:
        spec = self if self.bidirectional is not None else self.replace(bidirectional=widths.bidirectional)
        return T5Bias(spec, widths)

    def n_parameters(self, widths: Widths) -> int:
        return self.buckets * widths.n_heads

    def bucket(self, relative: Tensor) -> Tensor:
        """Bucket numbers of relative positions k − q."""
        count = self.buckets
        first = torch.zeros_like(relative)
        if self.bidirectional is not False:
            count //= 2
            first = (relative > 0).long() * count
            distance = relative.abs()
        else:
            distance = (-relative).clamp(min=0)
        exact = count // 2
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact) * (count - exact)
        far = (exact + far.long()).clamp(max=count - 1)
        return first + torch.where(distance < exact, distance, far)

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        bucket = self.bucket(k.position - q.position)
        return nn.functional.embedding(bucket, tensors[0]).movedim(-1, -3)

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        bucket = self.bucket(k.position - q.position).flatten()
        rows = grad.sum_to_size(bucket.numel() // (grad.shape[-1] * grad.shape[-2]), *grad.shape[1:])
        rows = rows.movedim(-3, -1).reshape(len(bucket), -1)
        return (torch.zeros_like(tensors[0]).index_add_(0, bucket, rows.to(tensors[0].dtype)),)


class T5Bias(PositionModule):
    def __init__(self, spec: T5Buckets, widths: Widths) -> None:
        super().__init__()
        self.spec, self.d_model = spec, widths.d_model
        self.weight = nn.Parameter(torch.empty(spec.buckets, widths.n_heads))

    def bias(self, device: torch.device | None = None) -> Bias:
        return Bias(self.spec, (self.weight,))
