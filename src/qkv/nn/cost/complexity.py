"""Kinds of layers compared: FLOPs, sequential operations and longest path, as in table 1 of Vaswani et al. (2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..attention.convolution import Convolution
from ..attention.linear import LinearAttention
from ..attention.multi_head import Attention
from ..layers.rnn import rnn_flops
from ..patterns.basic import causal, window


@dataclass(frozen=True)
class LayerComplexity:
    """A kind of layer for n tokens of width d.

    order:      FLOPs, sequential operations and path in O notation: k is the kernel, r the window, h the number of heads.
    flops:      of exchanging information between tokens, without the projections that every kind of attention has.
    sequential: operations that can't run at the same time.
    path:       the most layers that information passes between two tokens; in a recurrent layer, steps.
    """

    name: str
    order: tuple[str, str, str]
    flops: int
    sequential: int
    path: int


def compare(n: int, d: int, heads: int = 8, kernel: int = 3, size: int = 64) -> list[LayerComplexity]:
    """Count the layers of the paper's table, and linear attention, by the formulas of qkv's layers.

    Attention is causal, as in a decoder, the window has `size` tokens, and dilations of convolutions grow by the kernel from
    layer to layer. Raises ValueError for heads that don't divide d.
    """
    full = Attention(n_heads=heads, pattern=causal())
    near = Attention(n_heads=heads, pattern=causal() & window(size))
    linear = LinearAttention(n_heads=heads, pattern=causal())
    projections = full.cost(d, n).flops

    def pairwise(attention: Attention) -> int:
        return attention.cost(d, n, attention.pattern.pairs(n)).flops - projections

    convolution = Convolution(kernel=kernel, pattern=causal()).cost(d, n).flops
    apart = n - 1
    return [
        LayerComplexity("self-attention", ("n² · d", "1", "1"), pairwise(full), 1, min(apart, 1)),
        LayerComplexity("recurrent", ("n · d²", "n", "n"), n * rnn_flops("rnn", d, d, 1, 1), n, apart),
        LayerComplexity("convolution", ("k · n · d²", "1", "log_k n"), convolution, 1, _dilated_layers(n, kernel)),
        LayerComplexity(
            "windowed attention",
            ("r · n · d", "1", "n / r"),
            pairwise(near),
            1,
            math.ceil(apart / max(size - 1, 1)),
        ),
        LayerComplexity(
            "linear attention", ("n · d² / h", "1", "1"), linear.cost(d, n).flops - projections, 1, min(apart, 1)
        ),
    ]


def _dilated_layers(n: int, kernel: int) -> int:
    """Layers until a token sees n tokens, where dilations are 1, k, k², …: each layer multiplies the field by k."""
    layers, field = 0, 1
    while field < n:
        if kernel == 1:
            raise ValueError("a kernel of 1 token joins no tokens; take a kernel of at least 2")
        layers, field = layers + 1, field * kernel
    return layers
