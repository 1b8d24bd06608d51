"""Block-sparse attention in C++: any pattern that is the same for all heads, also with ALiBi, in fp32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ....core.graphs import constant
from ...patterns.basic import Causal, Pattern
from ..native import block_sparse as native
from ..native.dropout import EVERYWHERE, DropoutMask, WeightPlaces
from ..plan import is_aligned_causal, needed_parts
from ..products import onednn
from ..request import Request
from . import block_plan
from .block_plan import OperatorLayouts, Plans

MIN_SCORES = 1 << 20  # from which the kernels are called, and built if they aren't yet
_Results = tuple[Tensor, ...] | None
_MOST_FULL = 1024  # tokens up to which they are faster than the fused function where no block is left out


@dataclass
class BlockSparse:
    """`rows` are the plans of each row of the batch, or one for all rows. Results are None if a key or value in a visited
    block is NaN or infinite."""

    rows: tuple[Plans, ...]
    scale: float
    options: native.BlockSparseOptions

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor] | None:
        """Output (B, T, H, E) and log-sum-exp (B, T, H), 0 and −∞ for queries that see nothing, of queries (B, T, H, D),
        keys (B, S, K, D) and values (B, S, K, E)."""
        result = self._by_row(native.forward, tensors)
        return None if result is None else (result[0].to(tensors[0].dtype), result[1])

    def backward(self, *tensors: Tensor | None) -> tuple[Tensor, ...] | None:
        """dQ, dK and dV, of queries, keys, values, the two results and their gradients."""
        return self._by_row(native.backward, tensors)

    def _by_row(self, kernel: Callable[..., _Results], tensors: tuple[Tensor | None, ...]) -> _Results:
        """Run a kernel on all rows at once, or on each row with its own plans."""
        if len(self.rows) == 1:
            return kernel(*tensors, self.rows[0], self.scale, self.options)
        parts: list[tuple[Tensor, ...]] = []
        for b, plans in enumerate(self.rows):
            row = (None if x is None else x[b : b + 1] for x in tensors)
            part = kernel(*row, plans, self.scale, self.options.of_row(b))
            if part is None:
                return None
            parts.append(part)
        return tuple(torch.cat(xs) for xs in zip(*parts, strict=True))


def find_plans(
    q: Tensor, k: Tensor, v: Tensor, rule: Pattern, tokens: OperatorLayouts, dropping: bool = False
) -> tuple[Plans, ...] | None:
    """The plans with which the kernels serve these; None if they can't, or if there is too little work for them.

    With dropout they serve however little there is to do, but not tokens in another order, whose places the mask doesn't
    know.
    """
    least = 0 if dropping else MIN_SCORES
    n_scores = q.shape[2] * q.shape[1] * k.shape[1] * (len(q) if tokens.alike else 1)
    if rule.per_head or n_scores < least or not native.fits(q, k, v):
        return None
    plans = block_plan.plans(rule, tokens)
    if plans is None:
        return None
    if dropping:
        enough = all(plan.order is None for row in plans for plan in row)
    else:
        enough = not tokens.alike or len(q) * q.shape[2] * block_plan.n_scores(plans[0]) >= least
    return plans if enough and native.serves(q, k, v) else None


def find(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rule: Pattern,
    tokens: OperatorLayouts,
    scale: float,
    slopes: Tensor | None,
    mask: DropoutMask | None = None,
    of: WeightPlaces = EVERYWHERE,
) -> BlockSparse | None:
    """Return the kernels, or None if they don't apply. `slopes` are ALiBi's. `of` are the places of the masked weights."""
    plans = find_plans(q, k, v, rule, tokens, dropping=mask is not None)
    if plans is None:
        return None
    drawn = (0, 0, 0) if mask is None else (mask.seed, mask.dropped, mask.row)
    return BlockSparse(plans, scale, native.BlockSparseOptions(slopes, tokens.lengths, *drawn, of))


def beats_fused(request: Request) -> bool:
    """Whether the kernels are expected to be faster than PyTorch's fused function without a mask. Call it for at least
    `MIN_SCORES` scores.

    They are on AMD's processors with AVX-512, where the function multiplies by MKL; most of all in training in bf16, in
    which its backward pass takes each head of each row by itself.
    """
    q, k, v = request.q, request.k, request.v
    if request.bias is not None or request.softcap or request.dropout or not (is_favored(q) and native.takes(q, v)):
        return False
    layouts = request.layout, request.kv_layout
    parts = needed_parts(request.pattern, *layouts)
    if not (isinstance(request.pattern, Causal) and is_aligned_causal(parts, *layouts)):
        whole = all(layout.padding == "none" and layout.one_segment for layout in layouts)
        if parts or not whole or max(q.shape[1], k.shape[1]) > _MOST_FULL:
            return False
    # Nothing is built while a graph is traced: if the build fails later, the other kernels of `tiled` serve.
    return torch.compiler.is_compiling() or isinstance(q, FakeTensor) or native.serves(q, k, v)


def is_favored(q: Tensor) -> bool:
    """Whether this processor is one on which the kernels beat the fused function, in the dtype of q."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.bfloat16) and _favored()


@constant
def _favored() -> bool:
    return onednn.is_faster() and native.available("block_sparse")
