"""Heads that predict class scores, numbers or one vector for a whole sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from ....core.layout import Layout
from ....core.spec import Cost, brief
from ...layers.dropout import dropout_of_vectors
from ...layers.feedforward import ACTIVATIONS, Activation
from ...layers.linear import Linear
from ...layers.losses import LossSums, cross_entropy
from ...layers.norm import NoNorm, Norm
from .base import Head, HeadModule

Pooling = Literal["first", "last", "mean", "max"]


class SequenceClassifier(Head, kind="sequence-classifier"):
    """Scores of `labels` classes for a sequence: W p + b with p = norm(f(D h + d)).

    pool:       h is the state of the `first` or `last` real token, the `mean` of all, or in each dimension the `max`
                (Collobert et al. 2011, §3.2.2), for which one telling word is enough. BERT uses the first token (Devlin et
                al. 2019, §3.2), decoders the last (Radford et al. 2018, §3.2), because only the last has read all others.
    activation: f. None leaves out the dense layer: p = norm(h).
    dense_bias: whether there is d.
    norm:       of p; none by default (ModernBERT has one).
    labels:     None gives p itself, the pooled vector.

    Labels are classes (B,). If `labels` is 1, they are numbers (B,), and the loss is the squared error. Numbers (B, labels)
    from 0 to 1 are a yes or no for each class, and the loss is the binary cross-entropy.
    """

    labels_sequences: ClassVar[bool] = True

    labels: int | None = Field(default=2, gt=0)
    pool: Pooling = "first"
    activation: Activation | Literal["tanh"] | None = "tanh"
    dense_bias: bool = True
    norm: Norm = NoNorm()
    bias: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def module(self, d_model: int, vocab_size: int = 0) -> SequenceClassifierHead:
        return SequenceClassifierHead(self, d_model)

    def vector(self, d_model: int) -> int | None:
        return d_model if self.labels is None else None

    def cost(self, d_model: int, vocab_size: int = 0, tokens: int = 0) -> Cost:
        """Parameters alone. FLOPs are left out: they are constant, however long the sequence."""
        dense = 0 if self.activation is None else d_model * d_model + d_model * self.dense_bias
        labels = self.labels or 0
        return Cost(dense + d_model * labels + labels * self.bias) + self.norm.cost(d_model)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **ACTIVATIONS}


class SequenceClassifierHead(HeadModule):
    """The module of `SequenceClassifier`."""

    takes_layout = True

    def __init__(self, spec: SequenceClassifier, d_model: int) -> None:
        super().__init__()
        self.pool, self.dropout = spec.pool, spec.dropout
        self.dense = None if spec.activation is None else Linear(d_model, d_model, bias=spec.dense_bias)
        self.activation = None if spec.activation is None else _FUNCTIONS[spec.activation]
        self.norm = spec.norm.module(d_model)
        self.out = None if spec.labels is None else Linear(d_model, spec.labels, bias=spec.bias)

    def pooled(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B M"]:
        """p, the vector that the scores are computed from."""
        x = pool(hidden, layout, self.pool)
        return self.norm(x if self.dense is None or self.activation is None else self.activation(self.dense(x)))

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B labels"]:
        x = dropout_of_vectors(self.pooled(hidden, layout), self.dropout, self.training)
        return x if self.out is None else self.out(x)

    def output_loss(
        self,
        outputs: Float[Tensor, "B labels"],
        labels: Int[Tensor, " B"] | Float[Tensor, " B"] | Float[Tensor, "B labels"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> LossSums:
        if self.out is None:
            raise ValueError(
                "vectors of texts have no labels; train them by the objective cosine or contrastive, or give the head labels"
            )
        if outputs.shape[1] > 1 and not labels.is_floating_point():
            return cross_entropy(outputs, labels, label_smoothing, z_loss)
        labels = labels[:, None] if labels.ndim == 1 else labels
        if labels.shape != outputs.shape:
            raise ValueError(f"labels that are numbers are {tuple(outputs.shape)} here, not {tuple(labels.shape)}")
        measure = F.mse_loss if outputs.shape[1] == 1 else F.binary_cross_entropy_with_logits
        wide = torch.promote_types(outputs.dtype, torch.float32)
        loss = measure(outputs.to(wide), labels.to(wide), reduction="sum")
        return LossSums(loss, loss.detach(), torch.tensor(labels.numel(), device=outputs.device))


class SentenceVector(Head, kind="sentence-vector"):
    """The `mean` of the hidden states of real tokens, in each dimension their `max`, or the `first` (BERT's [CLS]) or `last`
    of them (Reimers & Gurevych 2019, §3). It has no parameters and no loss: train it by an objective that
    compares vectors, `cosine` or `contrastive`.
    """

    pool: Pooling = "mean"

    def module(self, d_model: int, vocab_size: int) -> SequenceClassifierHead:
        return SequenceClassifier(labels=None, activation=None, pool=self.pool).module(d_model)

    def vector(self, d_model: int) -> int:
        return d_model


class Projection(Head, kind="projection"):
    """W p + b of width `width`, where p is the state of the `first` or `last` real token, or the `mean` or `max` of all: a
    vector in the space of another model's vectors (CLIP, Radford et al. 2021, §2.4). It has no loss: train it by an
    objective that compares vectors.
    """

    labels_sequences: ClassVar[bool] = True

    width: int = Field(default=512, gt=0)
    pool: Pooling = "first"
    bias: bool = False

    def module(self, d_model: int, vocab_size: int = 0) -> ProjectionHead:
        return ProjectionHead(self, d_model)

    def vector(self, d_model: int) -> int:
        return self.width

    def cost(self, d_model: int, vocab_size: int = 0, tokens: int = 0) -> Cost:
        matrix = d_model * self.width
        return Cost(matrix + self.width * self.bias, 2 * matrix * bool(tokens))


class ProjectionHead(HeadModule):
    """The module of `Projection`."""

    takes_layout = True

    def __init__(self, spec: Projection, d_model: int) -> None:
        super().__init__()
        self.pool = spec.pool
        self.out = Linear(d_model, spec.width, bias=spec.bias)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B width"]:
        return self.out(pool(hidden, layout, self.pool))


def pool(hidden: Float[Tensor, "B T M"], layout: Layout, method: str) -> Float[Tensor, "B M"]:
    """The `mean` or `max` over real tokens, or the `first` or `last` real one, wherever padding stands.

    In rows without a real token, mean and max are 0.
    """
    valid = layout.valid.expand(hidden.shape[:2])
    if method == "mean":
        weight = valid.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
    if method == "max":
        largest = hidden.masked_fill(~valid.unsqueeze(-1), -math.inf).amax(1)
        return largest.masked_fill(~valid.any(1, keepdim=True), 0.0)
    if method not in ("first", "last"):
        raise ValueError(f"pooling is mean, max, first or last, not {brief(method)}")
    index = valid.long().argmax(1) if method == "first" else valid.shape[1] - 1 - valid.flip(1).long().argmax(1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), index]
