"""Seeded hashes of integers and texts, and permutations that are computed instead of stored."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_ROUNDS = 6


def mix(*numbers: int, after: int = 0) -> int:
    """A 64-bit hash of integers (splitmix64, chained), used as a seed. `mix(3, after=mix(1, 2))` is `mix(1, 2, 3)`."""
    state = after
    for number in numbers:
        state = (state ^ (number & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def text_hash(*texts: str) -> int:
    """A 64-bit hash of texts, the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest(), "little")


class Shuffle:
    """A seeded permutation of 0 … n − 1 that takes no memory: `Shuffle(n, seed)(i)` is what stands at place i.

    A Feistel network over the smallest even number of bits that holds n (Luby and Rackoff 1988) permutes a power of
    four. An index that lands outside 0 … n − 1 is sent through again until it falls inside (cycle walking). This takes
    fewer than four passes on average.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n = n
        self._half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
        self._low = np.uint64((1 << int(self._half)) - 1)
        self._keys = [np.uint64(mix(seed, n, step)) for step in range(_ROUNDS)]

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        out = self._pass(places.astype(np.uint64))
        outside = out >= self.n
        while outside.any():
            out[outside] = self._pass(out[outside])
            outside = out >= self.n
        return out.astype(np.int64)

    def _pass(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = x >> self._half, x & self._low
        for key in self._keys:
            mixed = (right ^ key) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ (mixed >> np.uint64(32)) & self._low
        return left << self._half | right
