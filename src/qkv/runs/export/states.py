"""What the layers of a traced decoder keep of the past: as inputs of the graph, and after a pass as its outputs.

    attention                  key, value (B, K, P, D), of the P tokens before
    latent attention           latent (B, 1, P, N)
    linear attention           sums (B, K, R, E + 1) and, for features with logs, top (B, K)
    convolutions               inputs (B, past, C)

What is zero, or has length 0, is the state before the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...core.layout import Layout
from ...nn.attention.convolution import ByteNetBlock, ConvolutionLayer, ConvolutionState
from ...nn.attention.latent import MultiHeadLatentAttention
from ...nn.attention.linear import LinearState, MultiHeadLinearAttention
from ...nn.attention.multi_head import MultiHeadAttention


class Held(NamedTuple):
    """A tensor that a layer keeps. sizes: those after the batch; None is the number of tokens. `wide`: fp32 in any case."""

    name: str
    sizes: tuple[int | None, ...]
    wide: bool = False

    @property
    def grows(self) -> bool:
        return None in self.sizes

    def example(self, batch: int, length: int, dtype: torch.dtype) -> Tensor:
        sizes = [length if size is None else size for size in self.sizes]
        return torch.zeros(batch, *sizes, dtype=torch.float32 if self.wide else dtype)

    def axes(self, batch: str, length: str) -> dict[int, str]:
        """The axes whose size may differ, with these names."""
        return {0: batch} | {axis: length for axis, size in enumerate(self.sizes, 1) if size is None}


class ExportedState(Protocol):
    """A layer's state in a pass. `present`: the tensors after it, in the order of `held`."""

    @property
    def present(self) -> list[Tensor]: ...


def held(mixer: nn.Module) -> list[Held]:
    """The tensors that a layer keeps."""
    if isinstance(mixer, MultiHeadLinearAttention):
        heads, features = mixer.n_kv_heads, mixer.features
        sums = Held("sums", (heads, features.width(mixer.d_head), mixer.d_value + 1), wide=True)
        return [sums, Held("top", (heads,), wide=True)] if features.has_log else [sums]
    if isinstance(mixer, ConvolutionLayer | ByteNetBlock):
        width = mixer.kernel.weight.shape[1] // mixer.spec.kernel
        return [Held("inputs", (mixer.spec.past, width))] if mixer.spec.past else []
    if isinstance(mixer, MultiHeadLatentAttention):
        return [Held("latent", (1, None, mixer.d_latent + mixer.d_rotary))]
    if isinstance(mixer, MultiHeadAttention):
        widths = {"key": mixer.d_head, "value": mixer.d_value}
        return [Held(name, (mixer.n_kv_heads, None, width)) for name, width in widths.items()]
    return []


def is_recurrent(mixer: nn.Module) -> bool:
    """Whether the size of a layer's state is independent of the number of tokens."""
    return isinstance(mixer, MultiHeadLinearAttention | ConvolutionLayer | ByteNetBlock)


def state_of(mixer: nn.Module, past: Sequence[Tensor], keys: Layout) -> ExportedState:
    """Return a layer's state before a pass; an empty `past` gives the initial state. `keys`: layout of all tokens so far."""
    if isinstance(mixer, MultiHeadLinearAttention):
        return Sums(past)
    if isinstance(mixer, ConvolutionLayer | ByteNetBlock):
        return Inputs(past)
    return PastState(past, keys)


class PastState:
    """The state of one attention layer: keys and values before this pass, (B, K, P, D), and after it."""

    unrotated = False

    def __init__(self, past: Sequence[Tensor], layout: Layout) -> None:
        self.past, self.layout = past, layout
        self.present: list[Tensor] = []

    def append(self, k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"]) -> tuple[Tensor, ...]:
        new = [x.transpose(1, 2) for x in (k, v)]
        self.present = [torch.cat([old, x], 2) for old, x in zip(self.past, new, strict=True)] if self.past else new
        return tuple(x.transpose(1, 2) for x in self.present)

    def remember(self, latent: Float[Tensor, "B T 1 N"]) -> Float[Tensor, "B S 1 N"]:
        """As `append`, for the latents of latent attention, which has no values."""
        new = latent.transpose(1, 2)
        self.present = [torch.cat([self.past[0], new], 2) if self.past else new]
        return self.present[0].transpose(1, 2)


class Sums(LinearState):
    """The state of linear attention."""

    def __init__(self, past: Sequence[Tensor]) -> None:
        super().__init__()
        self.sums, self.top = (*past, None, None)[:2]

    @property
    def present(self) -> list[Tensor]:
        return [tensor for tensor in (self.sums, self.top) if tensor is not None]


class Inputs(ConvolutionState):
    """The state of a convolution."""

    def __init__(self, past: Sequence[Tensor]) -> None:
        super().__init__()
        self.inputs = past[0] if past else None

    @property
    def present(self) -> list[Tensor]:
        return [] if self.inputs is None or not self.inputs.shape[1] else [self.inputs]
