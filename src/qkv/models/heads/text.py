"""What stands on top of a stack: heads that predict tokens, or label them or sequences; the pooler, and what reads it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.spec import Cost, Spec
from ...layers.dropout import dropout
from ...layers.embedding import Input
from ...layers.feedforward import ACTIVATIONS, Activation, FeedForwardLayer
from ...layers.linear import Linear
from ...layers.losses import LossSums, cross_entropy, linear_cross_entropy
from ...layers.norm import LayerNorm, Norm


class Head(Spec, role="head"):
    """What turns hidden states into what a model is trained for."""

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        raise NotImplementedError

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        return Cost()

    def module_for(self, model: Any) -> HeadModule:
        """The module, for a head that is made of more of the model's spec than its width and vocabulary."""
        return self.module(model.d_model, model.vocab_size)

    def cost_for(self, model: Any, tokens: int = 0) -> Cost:
        return self.cost(model.d_model, model.vocab_size, tokens)

    def kept(self) -> Head:
        """What other libraries are given of it: all that is not for its training alone."""
        return self

    def check(self, seen: Input) -> None:
        """Raises ValueError where the head can't read a stack whose input is `seen`."""


class HeadModule(nn.Module):
    """What every head's module offers: outputs from hidden states, and the loss sums for labels.

    One that `takes_layout` is given that of the hidden states too: `head(hidden, layout)`. Its outputs are of a whole
    sequence or image, so there is none to decode step by step. One that `takes_pixels` is given the images besides.
    """

    takes_layout = False
    takes_pixels = False

    def loss(self, hidden: Tensor, labels: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> LossSums:
        raise NotImplementedError

    def tie(self, stack: Any) -> None:
        """Share what is to be one parameter with the stack below; asked again after anything that replaces parameters."""


class Transform(Spec, kind="transform"):
    """norm(f(h W + b)), what masked language models do to hidden states before they meet the vocabulary (BERT).

    `width` is that of the result, d_model by default; narrow embeddings need it (ELECTRA).
    """

    activation: Activation = "gelu"
    norm: Norm = LayerNorm()
    width: int | None = Field(default=None, gt=0)

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        width = self.width or d_model
        return Cost(d_model * width + width, 2 * d_model * width * tokens) + self.norm.cost(width, tokens)


class TransformModule(nn.Module):
    """The module of `Transform`."""

    def __init__(self, spec: Transform, d_model: int) -> None:
        super().__init__()
        width = spec.width or d_model
        self.dense = Linear(d_model, width)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.module(width)

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T W"]:
        return self.norm(self.activation(self.dense(hidden)))


class LanguageModel(Head, kind="language-model"):
    """logits = h Wᵀ + b over the vocabulary. `tied`: W is the embedding table (Press & Wolf 2017).

    `transform` changes h first, as masked language models do. `scale` "rsqrt" multiplies it by 1/√d_model (T5 with tied
    tables), a number by itself (Granite).
    `softcap` bounds logits (Gemma 2). `fused` computes the loss without holding the logits; the plain way is
    for comparison.
    """

    tied: bool = True
    bias: bool = False
    transform: Transform | None = None
    scale: Literal["none", "rsqrt"] | Annotated[float, Field(gt=0)] = "none"
    softcap: float | None = Field(default=None, gt=0)
    fused: bool = True

    def width(self, d_model: int) -> int:
        """The width of what meets the vocabulary."""
        return (self.transform and self.transform.width) or d_model

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return LanguageModelHead(self, d_model, vocab_size)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        table = vocab_size * self.width(d_model)
        total = Cost((0 if self.tied else table) + vocab_size * self.bias, 2 * table * tokens)
        return total if self.transform is None else total + self.transform.cost(d_model, tokens)


class LanguageModelHead(HeadModule):
    """The module of `LanguageModel`. `weight` is the embedding's where it is tied."""

    def __init__(self, spec: LanguageModel, d_model: int, vocab_size: int) -> None:
        super().__init__()
        own = 1 / math.sqrt(d_model) if spec.scale == "rsqrt" else 1.0
        self.scale = spec.scale if isinstance(spec.scale, float) else own
        self.softcap, self.fused, self.tied = spec.softcap, spec.fused, spec.tied
        self.transform = None if spec.transform is None else TransformModule(spec.transform, d_model)
        self.weight = nn.Parameter(torch.empty(vocab_size, spec.width(d_model)))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if spec.bias else None

    def tie(self, stack: Any) -> None:
        if self.tied:
            self.weight = stack.embedding.weight

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T V"]:
        logits = F.linear(self._ready(hidden), self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, "B T"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> LossSums:
        if not self.fused or self.softcap is not None:
            return cross_entropy(self(hidden), labels, label_smoothing, z_loss)
        return linear_cross_entropy(self._ready(hidden), self.weight, self.bias, labels, label_smoothing, z_loss)

    def _ready(self, hidden: Tensor) -> Tensor:
        """What meets the vocabulary."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return hidden * self.scale if self.scale != 1.0 else hidden


class TokenClassifier(Head, kind="token-classifier"):
    """One score for each token and label: h W + b. `transform` changes h first.

    One label alone is a yes or no, its score the log-odds of yes: ELECTRA's discriminator (Clark et al. 2020).
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

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, "B T"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> LossSums:
        scores = self(hidden).float()
        if scores.shape[-1] == 1:  # the two classes no and yes, whose log-odds is the score
            scores = torch.cat([torch.zeros_like(scores), scores], -1)
        return cross_entropy(scores, labels, label_smoothing, z_loss)


class Span(Head, kind="span"):
    """Two scores for each token, that an answer begins and that it ends there: h W + b (Devlin et al. 2019, §4.2).

    `feedforward` puts norm(h + feedforward(h)) in h's place first (BigBird, Zaheer et al. 2020). Labels are (B, 2), the
    first and the last token of a span. Each is one of the row's real tokens; the loss is the cross-entropy over these.
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
        layout: Layout | None = None,
    ) -> LossSums:
        assert layout is not None
        if label_smoothing:
            raise ValueError(
                f"label_smoothing is {label_smoothing}, but rows differ in how many tokens there are; set 0"
            )
        padding = ~layout.valid.expand(hidden.shape[:2]).unsqueeze(1)
        scores = self(hidden, layout).float().transpose(1, 2).masked_fill(padding, -math.inf)
        return cross_entropy(scores, labels, z_loss=z_loss)


class SequenceClassifier(Head, kind="sequence-classifier"):
    """Scores of `labels` classes for a sequence: W f(D h + d) + b, with h the state of its `first` or `last` real token, or
    the `mean` of all, or in each dimension the `max` (Collobert et al. 2011, §3.2.2), for which one telling word is enough.

    `activation` is f; without one there is no dense layer before, and the scores are W h + b. The first token is BERT's way
    (Devlin et al. 2019, §3.2), the last a decoder's (Radford et al. 2018, §3.2), which alone has seen all the others.

    Labels are (B,) classes; with one label alone (B,) numbers, and the loss is the squared error; numbers (B, labels)
    from 0 to 1 are a yes or no for each, and the loss is the binary cross-entropy.
    """

    labels: int = Field(default=2, gt=0)
    pool: Literal["first", "last", "mean", "max"] = "first"
    activation: Activation | Literal["tanh"] | None = "tanh"
    bias: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return SequenceClassifierHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        """Its FLOPs are left out: they are those of one token, however long the sequence."""
        dense = 0 if self.activation is None else d_model * d_model + d_model
        return Cost(dense + d_model * self.labels + self.labels * self.bias)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **ACTIVATIONS}


class SequenceClassifierHead(HeadModule):
    """The module of `SequenceClassifier`."""

    takes_layout = True

    def __init__(self, spec: SequenceClassifier, d_model: int) -> None:
        super().__init__()
        self.pool, self.dropout = spec.pool, spec.dropout
        self.dense = None if spec.activation is None else Linear(d_model, d_model)
        self.activation = None if spec.activation is None else _FUNCTIONS[spec.activation]
        self.out = Linear(d_model, spec.labels, bias=spec.bias)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B labels"]:
        x = pool(hidden, layout, self.pool)
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(x))
        return self.out(dropout(x, self.dropout, self.training))

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, " B"] | Float[Tensor, " B"] | Float[Tensor, "B labels"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        layout: Layout | None = None,
    ) -> LossSums:
        assert layout is not None
        scores = self(hidden, layout)
        if scores.shape[1] > 1 and not labels.is_floating_point():
            return cross_entropy(scores, labels, label_smoothing, z_loss)
        labels = labels[:, None] if labels.ndim == 1 else labels
        if labels.shape != scores.shape:
            raise ValueError(f"labels that are numbers are {tuple(scores.shape)} here, not {tuple(labels.shape)}")
        measure = F.mse_loss if scores.shape[1] == 1 else F.binary_cross_entropy_with_logits
        wide = torch.promote_types(scores.dtype, torch.float32)
        loss = measure(scores.to(wide), labels.to(wide), reduction="sum")
        return LossSums(loss, loss.detach(), torch.tensor(labels.numel(), device=scores.device))


class Classifier(Spec, kind="classifier"):
    """Scores of `labels` classes for a sequence, W p + b with p what the pooler gives: BERT's next sentence, GLUE."""

    labels: int = Field(default=2, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def cost(self, d_model: int) -> Cost:
        return Cost(d_model * self.labels + self.labels, 2 * d_model * self.labels)


class ClassifierModule(nn.Module):
    """The module of `Classifier`."""

    def __init__(self, spec: Classifier, d_model: int) -> None:
        super().__init__()
        self.dropout = spec.dropout
        self.out = Linear(d_model, spec.labels)

    def forward(self, pooled: Float[Tensor, "B M"]) -> Float[Tensor, "B labels"]:
        return self.out(dropout(pooled, self.dropout, self.training))


class Pooler(Spec, kind="pooler"):
    """One vector for a sequence: the `first` token or the `mean` of real ones, through tanh(Wx + b) where `dense` (BERT)."""

    method: Literal["first", "mean"] = "first"
    dense: bool = True

    def cost(self, d_model: int) -> Cost:
        return Cost(d_model * d_model + d_model if self.dense else 0)


class PoolerModule(nn.Module):
    def __init__(self, spec: Pooler, d_model: int) -> None:
        super().__init__()
        self.method = spec.method
        self.dense = Linear(d_model, d_model) if spec.dense else None

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B M"]:
        pooled = pool(hidden, layout, self.method)
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))


def pool(hidden: Float[Tensor, "B T M"], layout: Layout, method: str) -> Float[Tensor, "B M"]:
    """`mean` or `max` over real tokens, or the `first` or `last` real one, wherever padding stands; rows without one give 0
    where all are asked for."""
    valid = layout.valid.expand(hidden.shape[:2])
    if method == "mean":
        weight = valid.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
    if method == "max":
        largest = hidden.masked_fill(~valid.unsqueeze(-1), -math.inf).amax(1)
        return largest.masked_fill(~valid.any(1, keepdim=True), 0.0)
    if method not in ("first", "last"):
        raise ValueError(f"pooling is mean, max, first or last, not {method!r}")
    index = valid.long().argmax(1) if method == "first" else valid.shape[1] - 1 - valid.flip(1).long().argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), index]
