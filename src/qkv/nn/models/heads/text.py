"""Heads that give each token a label or the bounds of an answer."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from ....core.layout import Layout
from ....core.spec import Cost
from ...layers.dropout import dropout
from ...layers.feedforward import FeedForwardLayer
from ...layers.linear import Linear
from ...layers.losses import LossSums, at_least_fp32, cross_entropy
from ...layers.norm import LayerNorm, Norm
from .base import Head, HeadModule
from .language_model import Transform, TransformModule


class TokenClassifier(Head, kind="token-classifier"):
    """One score for each token and label: h W + b. `transform` is applied to h first.

    With one label the decision is binary, and the score is the log-odds of "yes": ELECTRA's discriminator (Clark et al.
    2020).
    """

    labels: int = Field(default=1, gt=0)
    transform: Transform | None = None
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return TokenClassifierHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        width = (self.transform and self.transform.width) or d_model
        own = Cost(width * self.labels + self.labels, 2 * width * self.labels * tokens)
        return own if self.transform is None else own + self.transform.cost(d_model, tokens)


class TokenClassifierHead(HeadModule):
    """The module of `TokenClassifier`."""

    def __init__(self, spec: TokenClassifier, d_model: int) -> None:
        super().__init__()
        self.dropout = spec.dropout
        self.transform = None if spec.transform is None else TransformModule(spec.transform, d_model)
        self.out = Linear((spec.transform and spec.transform.width) or d_model, spec.labels)

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T labels"]:
        hidden = hidden if self.transform is None else self.transform(hidden)
        return self.out(dropout(hidden, self.dropout, self.training))

    def output_loss(
        self, outputs: Float[Tensor, "B T labels"], labels: Int[Tensor, "B T"], label_smoothing: float, z_loss: float
    ) -> LossSums:
        scores = at_least_fp32(outputs)
        if scores.shape[-1] == 1:  # the score is the log-odds of two classes, no and yes
            scores = torch.cat([torch.zeros_like(scores), scores], -1)
        return cross_entropy(scores, labels, label_smoothing, z_loss)


class Span(Head, kind="span"):
    """Two scores for each token, that an answer begins and that it ends there: h W + b (Devlin et al. 2019, §4.2).

    With `feedforward`, h is replaced by norm(h + feedforward(h)) first (BigBird, Zaheer et al. 2020). Labels are (B, 2):
    the first and the last token of a span. The loss is the cross-entropy over the real tokens of each row.
    """

    feedforward: FeedForwardLayer | None = None
    norm: Norm = LayerNorm()
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return SpanHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        own = Cost(2 * d_model + 2, 4 * d_model * tokens)
        if self.feedforward is None:
            return own
        return own + self.feedforward.cost(d_model, tokens) + self.norm.cost(d_model, tokens)


class SpanHead(HeadModule):
    """The module of `Span`."""

    takes_layout = True

    def __init__(self, spec: Span, d_model: int) -> None:
        super().__init__()
        self.dropout = spec.dropout
        self.feedforward = None if spec.feedforward is None else spec.feedforward.module(d_model)
        self.norm = None if spec.feedforward is None else spec.norm.module(d_model)
        self.out = Linear(d_model, 2)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B T 2"]:
        x = dropout(hidden, self.dropout, self.training)
        if self.feedforward is not None and self.norm is not None:
            x = self.norm(hidden + dropout(self.feedforward(x), self.dropout, self.training))
        return self.out(x)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, "B 2"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        *,
        layout: Layout,
    ) -> LossSums:
        if label_smoothing:
            raise ValueError(
                f"label_smoothing is {label_smoothing}, but rows differ in their number of tokens; set it to 0"
            )
        padding = ~layout.valid.expand(hidden.shape[:2]).unsqueeze(1)
        scores = at_least_fp32(self(hidden, layout)).transpose(1, 2).masked_fill(padding, -math.inf)
        return cross_entropy(scores, labels, z_loss=z_loss)
