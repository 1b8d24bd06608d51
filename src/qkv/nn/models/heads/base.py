"""The base class of heads: outputs and the loss of labels from the last hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor, nn

from ....core.spec import Cost, Spec
from ...layers.embedding import Input
from ...layers.losses import LossSums

if TYPE_CHECKING:
    from ..stack import Stack, StackModule


class HeadedModel(Protocol):
    """What a head reads of its model's spec."""

    @property
    def d_model(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def output(self) -> Stack: ...


class Head(Spec, role="head"):
    """Turns the last hidden states into a model's outputs, and into the loss of labels.

    labels_sequences: whether there is one label for each sequence, and not for each token.
    predicts_tokens:  whether its outputs are logits over the vocabulary.
    """

    labels_sequences: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = False

    @property
    def n_labels(self) -> int | None:
        """The number of labels; None for a head without `labels`."""
        return getattr(self, "labels", None)

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        raise NotImplementedError

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        return Cost()

    def module_for(self, model: HeadedModel) -> HeadModule:
        """The module. A head that depends on more of the model's spec than width and vocabulary overrides this."""
        return self.module(model.d_model, model.vocab_size)

    def cost_for(self, model: HeadedModel, tokens: int = 0) -> Cost:
        return self.cost(model.d_model, model.vocab_size, tokens)

    def vector(self, d_model: int) -> int | None:
        """The width of the one vector that it gives a sequence; None if its outputs are something else."""
        return None

    def kept(self) -> Head:
        """The head to save for other libraries, without the parts that only its own training needs."""
        return self

    def check(self, seen: Input) -> None:
        """Raise ValueError if the head can't read a stack whose input layer is `seen`."""


for _kinds, _home in (
    ("language-model", "heads.language_model"),
    ("token-classifier span", "heads.text"),
    ("sequence-classifier sentence-vector projection", "heads.sequence"),
    ("attention-pooling", "heads.attention_pooling"),
    ("image-classifier pixels mask-tokens detector", "heads.vision"),
    ("pixel-masks", "heads.pixel_masks"),
    ("forecaster", "heads.series"),
    ("ctc", "heads.ctc"),
    ("replaced-tokens", "electra"),  # which holds two models
):
    for _kind in _kinds.split():
        Head.kinds.later(_kind, f"qkv.nn.models.{_home}")


class HeadModule(nn.Module):
    """Base class of heads' modules: outputs from hidden states, and the loss sums of labels.

    A head that `takes_layout` is called with the layout of the hidden states too: `head(hidden, layout)`. Its outputs are
    of a whole sequence or image, so they can't be decoded step by step. One that `takes_pixels` also gets the images.

    A subclass defines `output_loss`, or `loss` if the loss is not computed from the outputs.
    """

    takes_layout = False
    takes_pixels = False

    def loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        *more: Any,
        **inputs: Any,
    ) -> LossSums:
        """The loss sums of labels; `inputs` are what `forward` takes beside the hidden states."""
        return self.output_loss(self(hidden, *more, **inputs), labels, label_smoothing, z_loss)

    def output_loss(self, outputs: Any, labels: Tensor, label_smoothing: float, z_loss: float) -> LossSums:
        """The loss sums of labels, given the outputs."""
        raise NotImplementedError

    def tie(self, stack: StackModule) -> None:
        """Share parameters with the stack below. Called again after anything that replaces parameters."""
