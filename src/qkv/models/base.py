"""What every model is, whatever it is made of: a spec that answers what the rest of the house asks, and its module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ..core.spec import Cost, Spec
from .initialization import Initialization


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
