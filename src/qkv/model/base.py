"""What every model is, whatever it is made of: a spec that answers what the rest of the house asks, and its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from ..core.cache import Cache
from ..core.caches import CacheKind
from ..core.layout import Layout
from ..core.spec import Cost, Spec
from .initial import Initialization


class ModelSpec(Spec, role="model"):
    """A model as a value. Its kinds are `transformer` and `recurrent`; another is a subclass with these."""

    vocab_size: int
    initialization: Initialization

    if TYPE_CHECKING:  # a kind has these as fields or as properties

        @property
        def d_model(self) -> int:
            """The width of hidden states."""

        @property
        def max_positions(self) -> int | None:
            """The longest context; None where nothing bounds it."""

    @property
    def is_encoder_decoder(self) -> bool:
        raise NotImplementedError

    @property
    def n_layers(self) -> int:
        """Of the deeper of its parts."""
        raise NotImplementedError

    def stacks(self) -> list[tuple[str, Any]]:
        """Its stacks of blocks, by name, where it has any."""
        return []

    def module(self) -> nn.Module:
        """The model, its parameters not filled yet."""
        raise NotImplementedError

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        """Parameters, and the FLOPs of one forward pass over `tokens` (and `source` tokens for an encoder beside it)."""
        raise NotImplementedError

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        """`cost`, part by part."""
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        """Exact, from the formulas; what is shared counts once."""
        return self.cost().parameters


class SequenceModel(Protocol):
    """What training, generation and the report need of a model's module."""

    @property
    def spec(self) -> Any: ...

    @property
    def is_encoder_decoder(self) -> bool: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_positions(self) -> int | None: ...

    @property
    def device(self) -> torch.device: ...

    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | Mapping[str, Any] | str | None = None,
    ) -> Cache: ...

    def step(self, ids: Tensor, cache: Cache, layout: Layout | None = None, all_positions: bool = False) -> Tensor: ...
