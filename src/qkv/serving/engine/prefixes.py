"""Prefix cache: prompts that begin alike are read once, block by block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...nn.kv_cache.cache import Cache
from ...nn.kv_cache.full import KeyValueState

_Key = tuple[int, tuple[int, ...]]
"""The number of the block before (0 for the first), and the block's tokens."""


class PrefixBlock(NamedTuple):
    """Keys and values (1, K, block, D) of some tokens of a prompt in each layer."""

    number: int
    layers: list[tuple[Tensor, Tensor]]

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for pair in self.layers for x in pair)


class Prefixes:
    """Keys and values of the beginnings of prompts, in blocks of `block` tokens, of which each is kept once.

    A block belongs to the blocks before it, as in vLLM's prefix cache (Kwon et al. 2023). Beyond `most` bytes, the least
    recently used blocks are removed, the last ones of a prompt first.
    """

    def __init__(self, most: int, block: int) -> None:
        self.most, self.block = most, block
        self.nbytes, self._numbers = 0, 0
        self._kept: OrderedDict[_Key, PrefixBlock] = OrderedDict()  # a block stands after those that follow it

    def clear(self) -> None:
        self._kept, self.nbytes = OrderedDict(), 0

    def fill(self, prompt: Sequence[int], cache: Cache) -> int:
        """Put the longest known beginning of a prompt into an empty cache; returns its number of tokens.

        At least one token is left to read, whose logits are needed.
        """
        if not self._kept or not _can_be_cut(cache):
            return 0
        keys = self._known(prompt[: len(prompt) - 1])
        if not keys:
            return 0
        blocks, device = [self._kept[key] for key in keys], torch.device("cpu")
        cache.admit(None, len(keys) * self.block, device)
        for i, state in enumerate(cache.layers):
            assert isinstance(state, KeyValueState)
            k, v = (torch.cat([one.layers[i][side] for one in blocks], 2) for side in (0, 1))
            state.append(k.transpose(1, 2), v.transpose(1, 2))
        return len(keys) * self.block

    def keep(self, tokens: Sequence[int], cache: Cache) -> None:
        """Store a copy of the whole blocks of these tokens, whose keys and values the cache begins with."""
        if not self.most or not _can_be_cut(cache):
            return
        keys = self._known(tokens)
        states = [state.tensors() for state in cache.layers if isinstance(state, KeyValueState)]
        for start in range(len(keys) * self.block, len(tokens) - self.block + 1, self.block):
            stop = start + self.block
            pairs = [(x["k"][:, :, start:stop].clone(), x["v"][:, :, start:stop].clone()) for x in states]
            self._numbers += 1
            before = self._kept[keys[-1]].number if keys else 0
            keys.append((before, tuple(tokens[start:stop])))
            self._kept[keys[-1]] = block = PrefixBlock(self._numbers, pairs)
            self.nbytes += block.nbytes
        self._use(keys)
        while self.nbytes > self.most:
            _, oldest = self._kept.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def _known(self, tokens: Sequence[int]) -> list[_Key]:
        """Return the keys of the stored blocks with which the tokens begin."""
        keys, before = list[_Key](), 0
        for start in range(0, len(tokens) - self.block + 1, self.block):
            key = before, tuple(tokens[start : start + self.block])
            if key not in self._kept:
                break
            keys.append(key)
            before = self._kept[key].number
        self._use(keys)
        return keys

    def _use(self, keys: Sequence[_Key]) -> None:
        for key in reversed(keys):
            self._kept.move_to_end(key)


def _can_be_cut(cache: object) -> bool:
    """Return whether the keys and values of the first tokens can be copied alone: the cache keeps those of all tokens."""
    if not isinstance(cache, Cache) or cache.cross:
        return False
    return all(type(state) is KeyValueState and state.slot_table.size is None for state in cache.layers)
