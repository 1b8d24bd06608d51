"""Base classes of models: `ModelSpec`, the configuration with its costs, and `ModelModule`, the PyTorch module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn

from ...core.batch import IGNORE
from ...core.layout import Layout
from ...core.spec import Cost, Spec, brief
from . import summary
from .initialization import Initialization


class ModelSpec(Spec, role="model"):
    """Base class of model configurations. qkv has the kinds `transformer` and `recurrent`; subclass it to add another."""

    initialization: Initialization

    if TYPE_CHECKING:  # subclasses define these as fields or as properties

        @property
        def vocab_size(self) -> int:
            """The size of the vocabulary; 0 for a model that reads no tokens."""

        @property
        def d_model(self) -> int:
            """The width of hidden states."""

        @property
        def max_positions(self) -> int | None:
            """The longest context; None if it is unbounded."""

        @property
        def is_encoder_decoder(self) -> bool:
            """Whether an encoder reads a source sequence and a decoder writes a target."""

        @property
        def n_layers(self) -> int:
            """Number of layers; of the deeper stack if there are two."""

    @property
    def source_vocabulary(self) -> int:
        """The size of the vocabulary that the source, or the only text, is read with."""
        return self.vocab_size

    @property
    def predicts_tokens(self) -> bool:
        """Whether the outputs are of tokens: logits over the vocabulary, or plain hidden states."""
        return True

    @property
    def labels_sequences(self) -> bool:
        """Whether there is one label for each sequence, and not for each token."""
        return False

    @property
    def token_types(self) -> int:
        """How many kinds of segments (BERT's sentences A and B) the model tells apart; 0 for none."""
        return 0

    def with_vocabulary(self, size: int) -> Self:
        """The model with a vocabulary of another size."""
        return self.replace({"vocab_size": size})

    def stacks(self) -> list[tuple[str, Any]]:
        """Names and stacks of blocks; empty for a model without blocks."""
        return []

    def __repr__(self) -> str:
        return summary.one_line(self)

    def __str__(self) -> str:
        return summary.tree(self)

    def _repr_html_(self) -> str:
        return summary.as_html(self)

    def module(self) -> nn.Module:
        """Make the module, with uninitialized parameters."""
        raise NotImplementedError

    def cost(self, tokens: int = 0, source: int = 0) -> Cost:
        """Count parameters, and FLOPs of a forward pass over `tokens` (and `source` tokens if an encoder has its own)."""
        raise NotImplementedError

    def parts(self, tokens: int = 0, source: int = 0) -> dict[str, Cost]:
        """Return `cost` for each part by name."""
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        """Exact number of parameters, by formula; shared parameters count once."""
        return self.cost().parameters


class ModelModule(nn.Module):
    """Base class of model modules other than the Transformer, including those defined outside qkv.

    `forward(ids, layout=…, labels=…)` returns logits, or with labels the sums of the loss. A model that generates has
    `start` and `step`, see `qkv.generation.model_interface`.
    """

    labels_seen = False  # whether the first labels were compared with the ids

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec: Any = spec
        self.register_load_state_dict_post_hook(tie_again)

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.spec.is_encoder_decoder)

    @property
    def vocab_size(self) -> int:
        return int(self.spec.vocab_size)

    @property
    def max_positions(self) -> int | None:
        """The longest context; None if it is unbounded."""
        longest: int | None = self.spec.max_positions
        return longest

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    if TYPE_CHECKING:  # defined by models that generate or give hidden states
        start: Any
        step: Any
        hidden: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def tie(self) -> None:
        """Share tied parameters. It is called again after parameters were cast, moved or loaded."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.tie()
        return self

    def recompute(self, policy: str) -> None:
        """Set the activation checkpointing policy. Raises ValueError for any but `none`: there are no blocks."""
        if policy != "none":
            raise ValueError(
                f"recompute={brief(policy)}: a {self.spec.kind} model has no blocks to recompute; leave it out"
            )


class Tied(Protocol):
    """A model with shared parameters."""

    def tie(self) -> None: ...


def tie_again(model: Tied, keys: object) -> None:
    """After `load_state_dict`, which may have assigned new parameters."""
    model.tie()


def warn_of_copying(model: Any, ids: object, labels: Tensor | None) -> None:
    """Warn if the first labels of a decoder equal its ids: such a model learns to copy, because labels are not shifted."""
    if labels is None or torch.compiler.is_compiling() or model.labels_seen:
        return  # in this order: a graph that reads `labels_seen` is compiled again when it changes
    if type(ids) is not Tensor or type(labels) is not Tensor:
        return  # fake tensors, for one, have no values to compare
    model.labels_seen = True
    decodes = getattr(model.spec, "decoder", None) is not None
    if not decodes or ids.shape != labels.shape or ids.ndim != 2 or ids.is_meta or ids.is_floating_point():
        return
    counted = labels != IGNORE
    constant = ids[:, 1:] == ids[:, :-1]
    if bool(((ids == labels) | ~counted).all() & counted.any()) and not bool(constant.all()):
        warnings.warn(
            "labels equal the ids, so this decoder learns to copy: labels are the next tokens here, and are not shifted; "
            "give model(ids[:, :-1], labels=ids[:, 1:])",
            stacklevel=3,
        )


def layout_of(ids: Tensor, layout: Layout | None, mask: Tensor | None) -> Layout:
    """Return the layout of token ids: the given one, that of an attention mask, or that of rows without padding.

    Raises ValueError if both are given, or ids are not (batch, length).
    """
    if ids.ndim != 2:
        raise ValueError(f"ids are (batch, length), not {tuple(ids.shape)}")
    if layout is not None and mask is not None:
        raise ValueError("give a layout or an attention mask, not both: a layout says what a mask does, and more")
    if mask is not None:
        return Layout.from_mask(mask)
    return Layout.full(ids.shape[1], device=ids.device) if layout is None else layout
