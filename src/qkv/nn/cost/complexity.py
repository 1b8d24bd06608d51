"""Kinds of layers compared: FLOPs, sequential operations and longest path, as in table 1 of Vaswani et al. (2017), with
the sparse, low-rank, hashed and distributed kinds that followed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..attention.convolution import Convolution
from ..attention.linear import LinearAttention
from ..attention.linformer import Linformer
from ..attention.lsh import LSHAttention
from ..attention.multi_head import Attention
from ..layers.rnn import rnn_flops
from ..patterns.algebra import Pattern
from ..patterns.basic import causal, window
from ..patterns.sparse import Strided


@dataclass(frozen=True)
class LayerComplexity:
    """A kind of layer for n tokens of width d.

    order:      FLOPs, sequential operations and path in O notation: k is the kernel, r the window, h the number of heads,
                m the keys of Linformer, c the chunk of Reformer, p the devices of a ring.
    flops:      of exchanging information between tokens, without the projections that every kind of attention has.
    sequential: operations that can't run at the same time.
    path:       the most layers that information passes between two tokens; in a recurrent layer, steps. None if it depends
                on the tokens: Reformer's hash decides who meets.
    """

    name: str
    order: tuple[str, str, str]
    flops: int
    sequential: int
    path: int | None


def compare(
    n: int,
    d: int,
    heads: int = 8,
    kernel: int = 3,
    size: int = 64,
    *,
    rank: int = 256,
    chunk: int = 64,
    devices: int = 8,
) -> list[LayerComplexity]:
    """Count the layers of the paper's table, and kinds of attention that scale better, by the formulas of qkv's layers.

    Attention is causal, as in a decoder, but for Linformer, which mixes all tokens. The window has `size` tokens, and
    dilations of convolutions grow by the kernel from layer to layer. Sparse attention is the strided pattern of Child et al.
    (2019) with a stride of ⌈√n⌉. Linformer has `rank` keys; their projection is counted. Reformer compares each `chunk` with
    two, in 4 rounds of 64 buckets. A ring's count is that of one of its `devices`, in as many steps.

    Raises ValueError for heads that don't divide d, and for a number below 1.
    """
    for name, value in (("rank", rank), ("chunk", chunk), ("devices", devices)):
        if value < 1:
            raise ValueError(f"{name} is a whole number of at least 1, not {value}")
    full = Attention(n_heads=heads, pattern=causal())
    projections = full.cost(d, n).flops

    def pairwise(pattern: Pattern) -> int:
        return full.cost(d, n, pattern.pairs(n)).flops - projections

    linear = LinearAttention(n_heads=heads, pattern=causal()).cost(d, n).flops - projections
    low_rank = Linformer(n_heads=heads, max_positions=n, rank=rank).cost(d, n).flops - projections
    convolution = Convolution(kernel=kernel, pattern=causal()).cost(d, n).flops
    every, apart = pairwise(causal()), n - 1
    stride, once = math.isqrt(apart) + 1, min(apart, 1)
    steps = math.ceil(apart / max(size - 1, 1))
    return [
        LayerComplexity("self-attention", ("n² · d", "1", "1"), every, 1, once),
        LayerComplexity("recurrent", ("n · d²", "n", "n"), n * rnn_flops("rnn", d, d, 1, 1), n, apart),
        LayerComplexity("convolution", ("k · n · d²", "1", "log_k n"), convolution, 1, _dilated_layers(n, kernel)),
        LayerComplexity("windowed attention", ("r · n · d", "1", "n / r"), pairwise(causal() & window(size)), 1, steps),
        LayerComplexity("linear attention", ("n · d² / h", "1", "1"), linear, 1, once),
        LayerComplexity(
            "sparse attention", ("n · √n · d", "1", "2"), pairwise(causal() & Strided(stride=stride)), 1, min(apart, 2)
        ),
        LayerComplexity("Linformer", ("m · n · d", "1", "1"), low_rank, 1, once),
        LayerComplexity("Reformer", ("c · n · d", "1", "by hash"), _hashed(n, d, heads, chunk), 1, None),
        LayerComplexity("ring attention", ("n² · d / p", "p", "1"), math.ceil(every / devices), devices, once),
    ]


def _hashed(n: int, d: int, heads: int, chunk: int) -> int:
    """FLOPs of LSH attention without its projections: hashing, and pairs of each chunk with two chunks in each round."""
    layer = LSHAttention(n_heads=heads, pattern=causal(), chunk=chunk)
    return layer.cost(d, n, causal().pairs(n)).flops - 2 * layer.cost(d).parameters * n


def _dilated_layers(n: int, kernel: int) -> int:
    """Layers until a token sees n tokens, where dilations are 1, k, k², …: each layer multiplies the field by k."""
    layers, field = 0, 1
    while field < n:
        if kernel == 1:
            raise ValueError("a kernel of 1 token joins no tokens; take a kernel of at least 2")
        layers, field = layers + 1, field * kernel
    return layers
