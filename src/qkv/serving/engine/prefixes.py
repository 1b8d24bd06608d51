"""Prefix cache: prompts that begin alike are read once, chunk by chunk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ...nn.kv_cache.cache import Cache
from ...nn.kv_cache.full import KeyValueState


class Prefixes:
    """KV caches of prompt prefixes, in whole chunks. Beyond a number of bytes, the least recently used are removed.

    A lookup returns a copy with the same numbers as reading the chunks again.
    """

    def __init__(self, most: int, chunk: int) -> None:
        self.most, self.chunk = most, chunk
        self._kept: OrderedDict[tuple[int, ...], Cache] = OrderedDict()

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self._kept.values())

    def clear(self) -> None:
        self._kept = OrderedDict()

    def find(self, prompt: Sequence[int]) -> tuple[Cache | None, int]:
        """A cache that continues the longest known beginning of a prompt, and its number of tokens.

        At least one token is left to read, whose logits are needed.
        """
        best, length = None, 0
        most = (len(prompt) - 1) // self.chunk * self.chunk
        for tokens in self._kept:
            shared = min(len(tokens), most)
            while shared > length and tokens[:shared] != tuple(prompt[:shared]):
                shared -= self.chunk
            if shared > length:
                best, length = tokens, shared
        if best is None:
            return None, 0
        self._kept.move_to_end(best)
        found = self._kept[best].fork()
        found.crop(length)
        return found, length

    def keep(self, tokens: Sequence[int], cache: Cache) -> None:
        """Store a copy of the cache of these tokens. It replaces caches of shorter prefixes of them."""
        if cache.nbytes > self.most or not _can_be_cut(cache):
            return
        key = tuple(tokens)
        for known in [known for known in self._kept if known == key[: len(known)]]:
            del self._kept[known]
        self._kept[key] = cache.fork()
        while self.nbytes > self.most:
            self._kept.popitem(last=False)


def _can_be_cut(cache: object) -> bool:
    """Whether the last tokens can be removed at any time: keys and values of all tokens are kept."""
    if not isinstance(cache, Cache) or cache.cross:
        return False
    return all(type(state) is KeyValueState and state.slot_table.size is None for state in cache.layers)
