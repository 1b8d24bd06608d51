"""The masks of dropout: functions of a seed and of the place of a number, the same in every kernel and for every backend.

Bits come from Threefry2x32 with 20 rounds (Salmon et al. 2011), a counter-based generator: a mask is computed again in the
backward pass, so nothing is stored, and it depends neither on threads nor on tiles, nor on padding to the right. C++
computes masks on CPUs, and PyTorch elsewhere and without a compiler.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ....core.ranks import first_row
from .. import buffers
from ..plain import is_eager
from .compiler import library
from .structures import DropoutSizes

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

    row: the number of the first row in the batch of all ranks.
    """

    seed: int
    dropped: int
    row: int = field(default_factory=first_row)

    @property
    def grown(self) -> float:
        return LEVELS / (LEVELS - self.dropped)

    def weights(
        self,
        shape: tuple[int, int, int, int],
        device: torch.device | str = "cpu",
        first: tuple[int, int, int] = (0, 0, 0),
    ) -> Bool[Tensor, "B H T S"]:
        """The kept weights of attention, from a first row of the batch, query and key.

        A row (of all in the batch) and head have a key, threefry(seed; row, head), and the bits of four keys in a row, from
        a multiple of four on, come from the counter (query, key // 4).
        """
        if torch.device(device).type == "cpu" and ready() and min(shape) > 0:
            return kept(shape, (first[0] + self.row, *first[1:]), self.seed, self.dropped)
        (b, h, t, s), (row, query, key) = shape, first
        low, high = _derived(self.seed, _range(self.row + row, b, device)[:, None], _range(0, h, device))
        fours = _range(key // 4, -(-(key + s) // 4) - key // 4, device)
        bits = _bits(low[..., None, None], high[..., None, None], _range(query, t, device)[:, None], fours)
        return bits.flatten(-2)[..., key % 4 : key % 4 + s] >= self.dropped

    def numbers(self, shape: torch.Size, device: torch.device | str) -> Bool[Tensor, "*shape"]:
        """The kept numbers of a tensor (rows, …, width), whose middle axes count tokens.

        A row has a key, threefry(seed; row, 0). Of 64 numbers of a token in a row, from a multiple of 64 on, number 16 w + l
        has the w-th 16 bits of the counter (token, 16 · chunk + l).
        """
        rows, width = shape[0] if len(shape) > 2 else 1, shape[-1]
        tokens, chunks = shape.numel() // max(rows * width, 1), -(-width // _CHUNK)
        low, high = _derived(
            self.seed, _range(self.row, rows, device), torch.zeros((), dtype=torch.int64, device=device)
        )
        counters = _range(0, chunks * 16, device)
        bits = _bits(low[:, None, None], high[:, None, None], _range(0, tokens, device)[:, None], counters)
        ordered = bits.view(rows, tokens, chunks, 16, 4).mT.reshape(rows, tokens, chunks * _CHUNK)
        return (ordered[..., :width] >= self.dropped).reshape(shape)


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
    numbers = rows, x.numel() // (rows * width), width, mask.row, *words(mask.seed), mask.dropped
    sizes = DropoutSizes(*numbers, torch.get_num_threads())
    place, before = ctypes.c_void_p, None if added is None else added.data_ptr()
    narrow = x.dtype == torch.bfloat16, dtype == torch.bfloat16
    kernels.qkv_dropout(place(x.data_ptr()), place(before), place(out.data_ptr()), ctypes.byref(sizes), *narrow)
    return out


def kept(
    shape: tuple[int, int, int, int], first: tuple[int, int, int], seed: int, dropped: int
) -> Bool[Tensor, "B H T S"]:
    """Which weights are kept, from a first row, query and key."""
    kernels, out = library("dropout"), torch.empty(shape, dtype=torch.bool, device="cpu")
    assert kernels is not None
    buffers.check("dropout", out)
    low, high = (ctypes.c_uint32(word) for word in words(seed))
    numbers = (ctypes.c_long * 3)(*first), (ctypes.c_long * 4)(*shape)
    place = ctypes.c_void_p(out.data_ptr())
    kernels.qkv_kept(place, *numbers, low, high, ctypes.c_uint32(dropped), torch.get_num_threads())
    return out


def words(seed: int) -> tuple[int, int]:
    """The low and the high 32 bits of a seed."""
    return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
