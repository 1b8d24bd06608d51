"""Compute dropout masks from a seed and the place of each element. All kernels and backends compute the same masks.

Bits come from Threefry2x32 with 20 rounds (Salmon et al. 2011), a counter-based generator. The backward pass computes a mask
again, so nothing is stored. A mask does not depend on threads, tiles or padding on the right. On CPUs it does not depend on
padding on the left, on packing, or on the rank that has a token, head or channel either (`TokenPlaces`). C++ computes masks
on CPUs; PyTorch computes them elsewhere and if there is no compiler.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ....core.ranks import first_row
from ...patterns.documents import TokenPlaces, current_places
from .. import buffers
from ..plain import is_eager
from .compiler import library
from .structures import DropoutSizes, KeptWeights

LEVELS = 1 << 16  # probabilities are multiples of 1/65536: 16 random bits for each number
_CHUNK = 64  # numbers of a token that share sixteen counters
_WORD = 0xFFFFFFFF
_TURNS = (13, 15, 26, 6, 17, 29, 16, 24)


def levels(p: float) -> int:
    """How many of 65,536 numbers are dropped with probability p, less than all."""
    return min(round(p * LEVELS), LEVELS - 1)


def draw_seed() -> Tensor:
    """A seed of 62 bits from PyTorch's default generator on the CPU, so seeding, resuming and activation checkpointing work
    as usual."""
    return torch.randint(1 << 62, (), device="cpu")


def can_replay(x: Tensor) -> bool:
    """Whether the mask of a tensor can be computed from a seed: not in compiled graphs, on the meta device, for fake tensors
    or under `torch.func`, for which PyTorch draws masks."""
    return is_eager(x) and x.device.type != "meta"


@dataclass(frozen=True)
class DropoutMask:
    """A dropout mask. A number is kept if its 16 random bits are at least `dropped`, so p = dropped/65,536. Kept numbers are
    multiplied by `grown` = 1/(1 − p), and the others are zeroed.

    row: index of the first row in the batch of all ranks. places: the places of the tokens of the forward pass.
    """

    seed: int
    dropped: int
    row: int = field(default_factory=first_row)
    places: TokenPlaces | None = field(default_factory=current_places)

    @property
    def grown(self) -> float:
        return LEVELS / (LEVELS - self.dropped)

    @property
    def whole_chunks(self) -> bool:
        """Whether the first channel is a multiple of `_CHUNK`, as C++ requires."""
        return self.places is None or self.places.channel % _CHUNK == 0

    def weights(
        self,
        shape: tuple[int, int, int, int],
        device: torch.device | str = "cpu",
        first: tuple[int, int, int] = (0, 0, 0),
        of: WeightPlaces | None = None,
    ) -> Bool[Tensor, "B H T S"]:
        """Return which attention weights are kept. `first` are the indices of the first row, query and key; `of` are the
        places of the weights, if they are not in order.

        Each document of the batch (an unpacked row is one document) and head have a key, threefry(seed; document, head). The
        bits for a query and four keys, beginning at a multiple of four, come from the counter (query, key // 4). Queries and
        keys are numbered within their document. Between documents the mask is arbitrary, since they don't see one another.
        """
        (b, h, t, s), (row, query, key) = shape, first
        of = EVERYWHERE if of is None else of
        if torch.device(device).type == "cpu" and ready() and min(shape) > 0:
            return kept(shape, (first[0] + self.row, *first[1:]), self.seed, self.dropped, of)
        document = _range(self.row + row, b, device)[:, None] if of.document is None else of.document.long()
        low, high = _derived(self.seed, document[:, None], _range(of.head, h, device)[:, None])
        queries = (_range(query, t, device)[None] if of.token is None else of.token)[:, None, :, None]
        low, high = low[..., None], high[..., None]
        if of.key_token is None:
            fours = _range(key // 4, -(-(key + s) // 4) - key // 4, device)
            bits = _bits(low, high, queries, fours)
            return bits.flatten(-2)[..., key % 4 : key % 4 + s] >= self.dropped
        numbers = of.key_token.long()[:, None, None]
        bits = _bits(low, high, queries.long(), numbers // 4)
        return bits.gather(-1, (numbers % 4)[..., None].expand(*bits.shape[:-1], 1))[..., 0] >= self.dropped

    def numbers(self, shape: torch.Size, device: torch.device | str) -> Bool[Tensor, "*shape"]:
        """Return which elements of a tensor (rows, …, width) are kept. The middle axes count tokens.

        Each document (an unpacked row is one document) has a key, threefry(seed; document, part). Channels come in chunks of
        64. In a chunk, channel 16 w + l uses the w-th 16 bits of the counter (token, 16 · chunk + l). `part` is 0, except on
        ranks with a part of the tokens, for tensors whose tokens are in another order.
        """
        rows, width = shape[0] if len(shape) > 2 else 1, shape[-1]
        tokens = shape.numel() // max(rows * width, 1)
        document, token, channel, part = self.of_numbers(rows, tokens)
        documents = _range(self.row, rows, device)[:, None] if document is None else document.long()
        low, high = _derived(self.seed, documents, torch.tensor(part, device=device))
        begin = channel // _CHUNK
        chunks = -(-(channel + width) // _CHUNK) - begin
        counters = _range(begin * 16, chunks * 16, device)
        counted = (_range(0, tokens, device)[None] if token is None else token.long())[..., None]
        bits = _bits(low[..., None], high[..., None], counted, counters).expand(rows, tokens, -1, -1)
        ordered = bits.reshape(rows, tokens, chunks, 16, 4).mT.reshape(rows, tokens, chunks * _CHUNK)
        return (ordered[..., channel % _CHUNK :][..., :width] >= self.dropped).reshape(shape)

    def of_numbers(self, rows: int, tokens: int) -> tuple[Tensor | None, Tensor | None, int, int]:
        """Return, for a tensor with these numbers of rows and tokens: the document and index of each token, the first
        channel, and the part of the tokens."""
        places = self.places
        if places is None:
            return None, None, 0, 0
        if not places.fit(rows, tokens):
            return None, None, places.channel, places.part
        return places.document, _spread(places.token, rows), places.channel, 0


class WeightPlaces(NamedTuple):
    """The places of attention weights.

    document:  the document (B, T) of each query; None for the number of its row.
    token:     the index (B, T) of each query in its document; None for its index in the row.
    key_token: the index (B, S) of each key in its document; None for its index in the row.
    head:      the first head.
    """

    document: Tensor | None
    token: Tensor | None
    key_token: Tensor | None
    head: int

    def joined(self, queries: int, keys: int, rows: int) -> Tensor | None:
        """Join `document`, `token` and `key_token` to one tensor (B, 2 T + S) for an operator; None if all are None."""
        if self.document is self.token is self.key_token is None:
            return None
        row, query, key = (torch.arange(n, dtype=torch.int32, device="cpu") for n in (rows, queries, keys))
        document = row[:, None].expand(-1, queries) + first_row() if self.document is None else self.document
        token, key_token = (
            own.expand(rows, -1) if x is None else x for x, own in ((self.token, query), (self.key_token, key))
        )
        return torch.cat([document, token, key_token], 1)

    @classmethod
    def parted(cls, joined: Tensor | None, queries: int, head: int) -> WeightPlaces:
        """The inverse of `joined`."""
        if joined is None:
            return cls(None, None, None, head)
        document, token, key_token = joined.split([queries, queries, joined.shape[1] - 2 * queries], 1)
        return cls(document.contiguous(), token.contiguous(), key_token.contiguous(), head)

    @classmethod
    def of(cls, places: TokenPlaces | None, keys: Tensor | None, rows: int, queries: int) -> WeightPlaces:
        """Return the places of weights for the places of queries (ignored unless their sizes fit) and the indices of keys
        (B or 1, S)."""
        if places is None or not places.fit(rows, queries):
            return EVERYWHERE if keys is None else cls(None, None, _spread(keys, rows), 0)
        return cls(places.document, _spread(places.token, rows), _spread(keys, rows), places.head)

    def of_tile(self, queries: slice, keys: slice) -> WeightPlaces:
        """Return the places for a slice of the queries and a slice of the keys."""
        document, token, key_token = (
            None if x is None else x[:, some].contiguous()
            for x, some in ((self.document, queries), (self.token, queries), (self.key_token, keys))
        )
        return WeightPlaces(document, token, key_token, self.head)


EVERYWHERE = WeightPlaces(None, None, None, 0)


def _spread(numbers: Tensor | None, rows: int) -> Tensor | None:
    """Expand the indices of tokens to all rows."""
    return None if numbers is None else numbers.expand(rows, -1).contiguous()


def _range(start: int, count: int, device: torch.device | str) -> Int[Tensor, " N"]:
    return torch.arange(start, start + count, device=device)


def threefry(low: Tensor, high: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Threefry2x32 of the counters (a, b) with the keys (low, high): words of 32 bits in int64."""
    keys = low, high, 0x1BD11BDA ^ low ^ high
    a, b = (a + low) & _WORD, (b + high) & _WORD
    for i in range(5):
        for turn in _TURNS[4 * (i % 2) :][:4]:
            a = (a + b) & _WORD
            b = (((b << turn) & _WORD) | (b >> (32 - turn))) ^ a
        a, b = (a + keys[(i + 1) % 3]) & _WORD, (b + keys[(i + 2) % 3] + i + 1) & _WORD
    return a, b


def _derived(seed: int, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    low, high = (torch.tensor(word, device=a.device) for word in words(seed))
    return threefry(low, high, a, b)


def _bits(low: Tensor, high: Tensor, a: Tensor, b: Tensor) -> Int[Tensor, "*counters 4"]:
    """Four numbers of 16 bits for each counter."""
    words = threefry(low, high, a, b)
    return torch.stack([half for word in words for half in (word & 0xFFFF, word >> 16)], -1)


# -- in C++ ----------------------------------------------------------------------------------------------------------


def ready() -> bool:
    return library("dropout") is not None


DTYPES = frozenset({torch.float32, torch.bfloat16})


def run(x: Tensor, added: Tensor | None, mask: DropoutMask, dtype: torch.dtype) -> Tensor:
    """`added` + dropout(x) in a dtype, of contiguous tensors (…, width) of one shape that aren't empty.

    x and the result are in fp32 or bf16, and `added` in the result's dtype. The first axis counts rows, the middle ones
    tokens. Raises ValueError for other tensors.
    """
    buffers.check("dropout", x, added)
    alike = added is None or (added.shape == x.shape and added.dtype == dtype and added.is_contiguous())
    if not alike or not x.is_contiguous() or not DTYPES.issuperset((x.dtype, dtype)):
        raise ValueError("dropout takes contiguous tensors of one shape, in fp32 or bf16; give x.contiguous().float()")
    kernels, out = library("dropout"), torch.empty_like(x, dtype=dtype)
    assert kernels is not None
    rows, width = x.shape[0] if x.ndim > 2 else 1, x.shape[-1]
    tokens = x.numel() // (rows * width)
    document, token, channel, part = mask.of_numbers(rows, tokens)
    where = channel, part, *(None if numbers is None else numbers.data_ptr() for numbers in (document, token))
    numbers = rows, tokens, width, mask.row, *where, *words(mask.seed), mask.dropped
    sizes = DropoutSizes(*numbers, torch.get_num_threads())
    place, before = ctypes.c_void_p, None if added is None else added.data_ptr()
    narrow = x.dtype == torch.bfloat16, dtype == torch.bfloat16
    kernels.qkv_dropout(place(x.data_ptr()), place(before), place(out.data_ptr()), ctypes.byref(sizes), *narrow)
    return out


def kept(
    shape: tuple[int, int, int, int], first: tuple[int, int, int], seed: int, dropped: int, of: WeightPlaces
) -> Bool[Tensor, "B H T S"]:
    """Which weights are kept, from a first row, query and key."""
    kernels, out = library("dropout"), torch.empty(shape, dtype=torch.bool, device="cpu")
    assert kernels is not None
    buffers.check("dropout", out, *of[:3])
    places = (None if x is None else x.data_ptr() for x in of[:3])
    weights = KeptWeights(*shape, *first, of.head, *places, *words(seed), dropped, torch.get_num_threads())
    kernels.qkv_kept(ctypes.c_void_p(out.data_ptr()), ctypes.byref(weights))
    return out


def words(seed: int) -> tuple[int, int]:
    """The low and the high 32 bits of a seed."""
    return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
