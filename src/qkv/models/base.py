"""What every model is, whatever its parts: a spec, which answers questions about the model, and its module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
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
            """Whether it reads a source apart from what it writes."""

        @property
        def n_layers(self) -> int:
            """Of the deeper of its parts."""

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


class ModelModule(nn.Module):
    """The module of a spec, and what the rest of the library asks of it. `forward(ids, layout=…, labels=…)` gives logits, or
    the sums of the loss of labels; a model that generates has `start` and `step`, see `qkv.generation.model_interface`."""

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.spec = spec

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.spec.is_encoder_decoder)

    @property
    def vocab_size(self) -> int:
        return int(self.spec.vocab_size)

    @property
    def max_positions(self) -> int | None:
        """The longest context; None where nothing bounds it."""
        longest: int | None = self.spec.max_positions
        return longest

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    if TYPE_CHECKING:  # what a model that generates, or gives vectors, defines
        start: Any
        step: Any
        hidden: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def tie(self) -> None:
        """Make shared parameters one again, after something has replaced them."""

    def recompute(self, policy: str) -> None:
        """Raise ValueError for any policy but `none`: there are no blocks to recompute."""
        if policy != "none":
            raise ValueError(f"recompute={policy!r}: a {self.spec.kind} model has no blocks to recompute; leave it out")
