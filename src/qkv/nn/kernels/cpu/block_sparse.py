"""Block-sparse attention in C++: any pattern that is the same for all heads, also with ALiBi, in fp32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ....core.graphs import constant
from ...patterns.basic import Causal, Pattern
from ..native import block_sparse as native
from ..native.dropout import DropoutMask
from ..plan import is_aligned_causal, needed_parts
from ..products import onednn
from ..request import Request
from . import block_plan
from .block_plan import OperatorLayouts, Plans

MIN_SCORES = 1 << 20  # from which the kernels are called, and built if they aren't yet
_MOST_FULL = 1024  # tokens up to which they are faster than the fused function where no block is left out


@dataclass
class BlockSparse:
    """Queries (B, T, H, D), keys (B, S, K, D) and values (B, S, K, E). `rows` are the plans of each row of the batch, or
    one for all rows. Results are None if a key or value in a visited block is NaN or infinite."""

    q: Tensor
    k: Tensor
    v: Tensor
    rows: tuple[Plans, ...]
    scale: float
    options: native.BlockSparseOptions

    def forward(self) -> tuple[Tensor, Tensor] | None:
        """Output (B, T, H, E) and log-sum-exp (B, T, H): 0 and −∞ for queries that see nothing."""
        result = _concatenated(
            native.forward(self.q[at], self.k[at], self.v[at], plans, self.scale, options)
            for at, plans, options in self._by_row()
        )
        return None if result is None else (result[0].to(self.q.dtype), result[1])

    def backward(self, out: Tensor, lse: Tensor, d_out: Tensor, d_lse: Tensor | None) -> tuple[Tensor, ...] | None:
        """dQ, dK and dV."""
        return _concatenated(
            native.backward(
                self.q[at],
                self.k[at],
                self.v[at],
                out[at],
                lse[at],
                d_out[at],
                None if d_lse is None else d_lse[at],
                plans,
                self.scale,
                options,
            )
            for at, plans, options in self._by_row()
        )

    def _by_row(self) -> Iterator[tuple[slice, Plans, native.BlockSparseOptions]]:
        if len(self.rows) == 1:
            yield slice(None), self.rows[0], self.options
            return
        for b, plans in enumerate(self.rows):
            yield slice(b, b + 1), plans, self.options._replace(row=b)


def find_plans(
    q: Tensor, k: Tensor, v: Tensor, rule: Pattern, tokens: OperatorLayouts, always: bool = False
) -> tuple[Plans, ...] | None:
    """The plans with which the kernels serve these; None if they can't, or, unless `always`, if there is too little work for
    them."""
    least = 0 if always else MIN_SCORES
    n_scores = q.shape[2] * q.shape[1] * k.shape[1] * (len(q) if tokens.alike else 1)
    if rule.per_head or n_scores < least or not native.fits(q, k, v):
        return None
    plans = block_plan.plans(rule, tokens)
    if plans is None:
        return None
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
) -> BlockSparse | None:
    """The kernels, if they can serve. `slopes` are ALiBi's. With dropout they serve however little there is to do."""
    plans = find_plans(q, k, v, rule, tokens, always=mask is not None)
    if plans is None or (mask is not None and any(plan.order is not None for row in plans for plan in row)):
        return None  # the places of tokens in another order are unknown to the mask
    options = native.BlockSparseOptions(
        slopes, tokens.lengths, *((0, 0) if mask is None else (mask.seed, mask.dropped))
    )
    return BlockSparse(q, k, v, plans, scale, options)


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


def _concatenated(parts: Iterable[tuple[Tensor, ...] | None]) -> tuple[Tensor, ...] | None:
    """The parts of a batch concatenated; None if one part is None."""
    results: list[tuple[Tensor, ...]] = []
    for part in parts:
        if part is None:
            return None
        results.append(part)
    return results[0] if len(results) == 1 else tuple(torch.cat(xs) for xs in zip(*results, strict=True))
