"""The base class of heads, and heads that give each token something: a word, a label, the bounds of an answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from ....core.layout import Layout
from ....core.spec import Cost, Spec
from ...layers.dropout import dropout
from ...layers.embedding import Input
from ...layers.feedforward import ACTIVATIONS, Activation, FeedForwardLayer
from ...layers.linear import Linear, product
from ...layers.losses import LossSums, at_least_fp32, cross_entropy, linear_cross_entropy
from ...layers.norm import LayerNorm, Norm
from ...layers.quantized import dense

if TYPE_CHECKING:
    from ..stack import StackModule


class Head(Spec, role="head"):
    """Turns the last hidden states into a model's outputs, and into the loss of labels.

    labels_sequences: whether there is one label for each sequence, and not for each token.
    predicts_tokens:  whether its outputs are logits over the vocabulary.
    """

    labels_sequences: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = False

    @property
    def n_labels(self) -> int | None:
        """How many labels it has scores for; None for a head without `labels`."""
        return getattr(self, "labels", None)

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        raise NotImplementedError

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        return Cost()

    def module_for(self, model: Any) -> HeadModule:
        """The module. A head that depends on more of the model's spec than width and vocabulary overrides this."""
        return self.module(model.d_model, model.vocab_size)

    def cost_for(self, model: Any, tokens: int = 0) -> Cost:
        return self.cost(model.d_model, model.vocab_size, tokens)

    def vector(self, d_model: int) -> int | None:
        """The width of the one vector that it gives a sequence; None if its outputs are something else."""
        return None

    def kept(self) -> Head:
        """The head to save for other libraries, without the parts that only its own training needs."""
        return self

    def check(self, seen: Input) -> None:
        """Raise ValueError if the head can't read a stack whose input layer is `seen`."""


Head.kinds.later("ctc", "qkv.nn.models.heads.ctc")
Head.kinds.later("replaced-tokens", "qkv.nn.models.electra")  # which holds two models
Head.kinds.later("attention-pooling", "qkv.nn.models.heads.attention_pooling")


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


class Transform(Spec, kind="transform"):
    """norm(f(h W + b)), applied to hidden states before the output layer of masked language models (BERT).

    `width` is the width of the result, d_model by default; narrow embeddings need another (ELECTRA). Without `bias` there
    is no b (ModernBERT).
    """

    activation: Activation = "gelu"
    norm: Norm = LayerNorm()
    width: int | None = Field(default=None, gt=0)
    bias: bool = True

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        width = self.width or d_model
        return Cost(d_model * width + width * self.bias, 2 * d_model * width * tokens) + self.norm.cost(width, tokens)


class TransformModule(nn.Module):
    """The module of `Transform`."""

    def __init__(self, spec: Transform, d_model: int) -> None:
        super().__init__()
        width = spec.width or d_model
        self.dense = Linear(d_model, width, bias=spec.bias)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.module(width)

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T W"]:
        return self.norm(self.activation(self.dense(hidden)))


class LanguageModel(Head, kind="language-model"):
    """logits = h Wᵀ + b over the vocabulary. `tied`: W is the embedding table (Press & Wolf 2017).

    `transform` is applied to h first, as in masked language models. `scale` multiplies h: "rsqrt" by 1/√d_model (T5 with
    tied tables), a number by itself (Granite). `softcap` bounds logits (Gemma 2). `fused` computes the loss without
    materializing the logits; false is for comparison.
    """

    predicts_tokens: ClassVar[bool] = True

    tied: bool = True
    bias: bool = False
    transform: Transform | None = None
    scale: Literal["none", "rsqrt"] | Annotated[float, Field(gt=0)] = "none"
    softcap: float | None = Field(default=None, gt=0)
    fused: bool = True

    def width(self, d_model: int) -> int:
        """The width of the states that the output matrix is applied to."""
        return (self.transform and self.transform.width) or d_model

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return LanguageModelHead(self, d_model, vocab_size)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        table = vocab_size * self.width(d_model)
        total = Cost((0 if self.tied else table) + vocab_size * self.bias, 2 * table * tokens)
        return total if self.transform is None else total + self.transform.cost(d_model, tokens)


class LanguageModelHead(HeadModule):
    """The module of `LanguageModel`. Where it is tied, `weight` is the embedding's."""

    def __init__(self, spec: LanguageModel, d_model: int, vocab_size: int) -> None:
        super().__init__()
        own = 1 / math.sqrt(d_model) if spec.scale == "rsqrt" else 1.0
        self.scale = spec.scale if isinstance(spec.scale, float) else own
        self.softcap, self.fused, self.tied = spec.softcap, spec.fused, spec.tied
        self.transform = None if spec.transform is None else TransformModule(spec.transform, d_model)
        self.weight = nn.Parameter(torch.empty(vocab_size, spec.width(d_model)))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if spec.bias else None

    def tie(self, stack: StackModule) -> None:
        if self.tied:
            self.weight = stack.embedding.weight

    def forward(self, hidden: Float[Tensor, "B T M"]) -> Float[Tensor, "B T V"]:
        hidden = hidden if self.transform is None and self.scale == 1.0 else self.transformed(hidden)
        logits = product(hidden, self.weight, self.bias)
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
        states, weight = self.transformed(hidden), dense(self.weight)
        return linear_cross_entropy(states, weight, self.bias, labels, label_smoothing, z_loss)

    def transformed(self, hidden: Tensor) -> Tensor:
        """The states that the output matrix is applied to."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return hidden * self.scale if self.scale != 1.0 else hidden


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
