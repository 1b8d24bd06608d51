"""`QkvCache`: a cache of qkv in transformers' `generate`."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache as TheirCache

from ...nn.kv_cache.cache import Cache


class QkvCache(TheirCache):
    """A cache of qkv as transformers' `generate` passes it on, reorders and shortens it."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.cache: Cache | None = None

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_initialized(self) -> bool:
        return self.cache is not None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self.cache is None else self.cache.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        longest = None if self.cache is None else self.cache.max_positions
        return -1 if longest is None else longest

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.cache is not None:
            self.cache.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.cache is not None:
            self.reorder_cache(torch.arange(self.cache.batch_size, device=self.cache.device).repeat_interleave(repeats))

    def crop(self, max_length: int) -> None:
        """Keep `max_length` tokens of every row, or remove −max_length of them."""
        if self.cache is not None:
            kept = max_length if max_length >= 0 else self.cache.length + max_length
            self.cache.crop(min(kept, self.cache.length))

    def __len__(self) -> int:
        return 0 if self.cache is None else len(self.cache.layers)
