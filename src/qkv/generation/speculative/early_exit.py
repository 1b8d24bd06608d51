"""Proposals by the model's own first layers and its head, with the model's cache (LayerSkip, Elhoushi et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.layout import Layout
from ..model_interface import DecodingModel, ParallelDecoder
from ..speculation import EarlyExit
from .draft_model import DraftProposer
from .proposals import Proposals
from .rows import Continuation, Processed
from .verification import Randomness

if TYPE_CHECKING:
    from ...nn.kv_cache.cache import Cache


class EarlyExitProposer(DraftProposer):
    """Lets the first layers continue every row; what they add to the cache is removed before the tokens are checked."""

    cache: Cache

    def __init__(
        self,
        kind: EarlyExit,
        model: ParallelDecoder,
        cache: Cache,
        processed: Processed,
        random: Randomness | None,
        num_samples: int,
    ) -> None:
        super().__init__(kind, FirstLayers(model, layers_of(kind, model)), cache, processed, random)
        self.shares_pages = num_samples > 1  # until all layers have read a token of each sample

    def propose(self, rows: Sequence[Continuation], most: Sequence[int]) -> Proposals:
        if self.shares_pages:
            self.shares_pages = False
            return Proposals([[] for _ in rows])
        self.read = {row.index: len(row) - 1 for row in rows}
        before = self.cache.length
        proposals = super().propose(rows, most)
        self.cache.rewind(self.cache.length - before)
        return proposals

    def checked(self, accepted: Sequence[int], going: Sequence[int]) -> None:
        """Nothing to do: the search keeps the cache."""


class FirstLayers:
    """A model's first layers and its head, which step with the model's cache."""

    def __init__(self, model: Any, layers: int) -> None:
        self.model, self.layers = model, layers
        self.device: torch.device = model.device
        self.max_positions: int | None = model.max_positions

    def step(self, ids: Tensor, cache: Any, layout: Layout | None = None, all_positions: bool = False) -> Tensor:
        logits: Tensor = self.model.step(ids, cache, layout, all_positions, layers=self.layers)
        return logits


def layers_of(kind: EarlyExit, model: DecodingModel) -> int:
    """The number of layers that propose. Raises ValueError if the model has no layers after them."""
    decoder = getattr(getattr(model, "spec", None), "decoder", None)
    if decoder is None or not hasattr(model, "decoder"):
        raise ValueError("early exit needs the layers of a Transformer's decoder; use lookup or a draft model instead")
    count = int(decoder.n_layers)
    layers = max(1, count // 3) if kind.layers is None else kind.layers
    if layers >= count:
        raise ValueError(
            f"early exit after {layers} of {count} decoder layers leaves none to check with; "
            + (f"give 1 to {count - 1}" if count > 1 else "use lookup or a draft model instead")
        )
    return layers
