"""Block-sparse attention in C++, in blocks of 64 queries and 64 keys: plans of blocks, and calls of the kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import buffers
from .compiler import available, library
from .dropout import EVERYWHERE, WeightPlaces, words
from .structures import BlockSparsePlan, BlockSparseSizes, Strides

SIDE = 64  # queries, and keys, of a block
WIDEST, UNIT = 128, 16  # the largest width of heads, of which widths are multiples


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """Which blocks of keys each strip of 64 queries visits, as tensors on the CPU.

    number: indices of the N strips that see something. ends: strip i visits entries ends[i] … ends[i + 1] − 1 of `block`.
    block:  indices of blocks of keys. table: the index in `limits` of the mask of each, −1 if all pairs are allowed.
    limits: (tables, keys, queries), +∞ if a pair is allowed, else −∞. spans: the first and the end, in steps of 16, of
            the queries that see any of each 16 keys of a table.
    places, kv_places: positions of queries and keys, for ALiBi.
    order:  the order in which tokens form strips and blocks, if it is not 0, 1, 2, …
    """

    number: Int[Tensor, " N"]
    ends: Int[Tensor, " N1"]
    block: Int[Tensor, " M"]
    table: Int[Tensor, " M"]
    limits: Float[Tensor, "L 64 64"]
    spans: Int[Tensor, "L 4 2"]
    places: Float[Tensor, " T"]
    kv_places: Float[Tensor, " S"]
    order: Int[Tensor, " T"] | None = None

    @cached_property
    def addresses(self) -> list[ctypes.c_void_p | None]:
        """The addresses of the tensors, as `BlockSparsePlan` takes them."""
        return pointers([getattr(self, name) for name in BlockSparsePlan.tensors])


class BlockSparseOptions(NamedTuple):
    """What a call may add to a plan.

    slopes:  ALiBi's; scores of head h fall by slopes[h] for each unit of distance.
    lengths: the number of keys of each row of the batch, which come first.
    seed, dropped: of dropout, see `DropoutMask`; 0 of 65,536 weights are dropped by default. row: the number of the first
             row in the batch that the mask is for. of: the places of the weights.
    """

    slopes: Float[Tensor, " H"] | None = None
    lengths: Int[Tensor, " B"] | None = None
    seed: int = 0
    dropped: int = 0
    row: int = 0
    of: WeightPlaces = EVERYWHERE

    def of_row(self, b: int) -> BlockSparseOptions:
        """Return the options for row b of the batch."""
        document, token, key_token = (None if x is None else x[b : b + 1] for x in self.of[:3])
        return self._replace(row=self.row + b, of=WeightPlaces(document, token, key_token, self.of.head))


def sizes_of(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> list[int | Strides]:
    """The numbers with which structures of attention begin, and the strides of each tensor."""
    counts = [q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3]]
    return [*counts, *[Strides(*x.stride()[:3]) for x in (q, k, v, *more)]]


def pointers(tensors: Sequence[Tensor | None]) -> list[ctypes.c_void_p | None]:
    return [None if x is None else ctypes.c_void_p(x.data_ptr()) for x in tensors]


def empty_results(q: Tensor, v: Tensor, plan: BlockPlan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp for a kernel to fill: 0 and −∞ if it skips strips of queries that see nothing."""
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=dtype, device="cpu")
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cpu")
    if skips_strips(plan, q):
        out.zero_()
        lse.fill_(-math.inf)
    return out, lse


def skips_strips(plan: BlockPlan, q: Tensor) -> bool:
    """Whether some strips of queries see nothing."""
    return len(plan.number) * SIDE < q.shape[1]


def takes(q: Tensor, v: Tensor) -> bool:
    """Whether the kernels take these widths and dtypes: at most fp32, on the CPU."""
    d, e = q.shape[3], v.shape[3]
    fits_units = d <= WIDEST and e <= WIDEST and d % UNIT == e % UNIT == 0
    return fits_units and q.device.type == "cpu" and q.dtype != torch.float64


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels take these, and are prebuilt or can be compiled."""
    return takes(q, v) and available("block_sparse")


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels serve these: `fits`, and the kernels are there, built if they weren't yet."""
    return fits(q, k, v) and library("block_sparse") is not None


def forward(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"],
    v: Float[Tensor, "B S K E"],
    plans: tuple[BlockPlan, ...],
    scale: float,
    options: BlockSparseOptions = BlockSparseOptions(),  # noqa: B008 (immutable)
) -> tuple[Float[Tensor, "B T H E"], Float[Tensor, "B T H"]] | None:
    """Output and log-sum-exp in fp32, 0 and −∞ for queries that see nothing, over all pairs of disjoint plans.

    None if a visited key or value is NaN or infinite, because masked ones would reach queries that don't see them.
    """
    inputs = [*map(buffers.by_rows, (q.float(), k.float(), v.float()))]
    out, lse = empty_results(q, v, plans[0], torch.float32)
    for i, plan in enumerate(plans):
        if not _call("qkv_forward", inputs, [out, lse], plan, scale, options, merges=i > 0):
            return None
    return out, lse


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    d_out: Tensor,
    d_lse: Tensor | None,
    plans: tuple[BlockPlan, ...],
    scale: float,
    options: BlockSparseOptions = BlockSparseOptions(),  # noqa: B008 (immutable)
) -> tuple[Tensor, Tensor, Tensor] | None:
    """dQ, dK and dV in fp32, from the results of `forward` and their gradients; None if `forward` returns None."""
    inputs = [*map(buffers.by_rows, (q.float(), k.float(), v.float()))]
    results = [None if x is None else x.float().contiguous() for x in (out, lse, d_out, d_lse)]
    d_q = (torch.zeros if skips_strips(plans[0], q) else torch.empty)(q.shape, dtype=torch.float32, device="cpu")
    d_k, d_v = (torch.zeros(x.shape, dtype=torch.float32, device="cpu") for x in (k, v))
    for i, plan in enumerate(plans):
        if not _call("qkv_backward", inputs, [*results, d_q, d_k, d_v], plan, scale, options, merges=i > 0):
            return None
    return d_q, d_k, d_v


def _call(
    name: str,
    inputs: list[Tensor],
    others: list[Tensor | None],
    plan: BlockPlan,
    scale: float,
    options: BlockSparseOptions,
    merges: bool,
) -> bool:
    """Call a kernel with queries, keys and values, and the tensors that it reads or fills beside them."""
    kernels, tensors = library("block_sparse"), [*inputs, *others]
    assert kernels is not None
    buffers.check(name, *tensors)
    numbers = len(plan.number), options.row, options.of.head, scale, merges, torch.get_num_threads()
    sizes = BlockSparseSizes(*sizes_of(*inputs), *numbers, *words(options.seed), options.dropped)
    fields = BlockSparsePlan(*plan.addresses, *pointers([options.slopes, options.lengths, *options.of[:3]]))
    return bool(getattr(kernels, name)(*pointers(tensors), ctypes.byref(fields), ctypes.byref(sizes)))
