"""ELECTRA (Clark et al. 2020): a small generator fills in masked tokens, and the model detects which were replaced.

The generator is part of the head: it is trained, saved and resumed with the model, and dropped with the head.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from ...core.batch import IGNORE
from ...core.spec import Cost
from ..layers.dropout import own_draws
from ..layers.embedding import Embedding
from ..layers.losses import LossSums
from ..layers.norm import NoNorm
from ..positions.absolute import Learned, LearnedEmbedding
from .heads.base import Head, HeadedModel, HeadModule
from .heads.language_model import LanguageModel, Transform
from .heads.text import TokenClassifier, TokenClassifierHead
from .replace import replace
from .stack import StackModule
from .transformer import Transformer, TransformerModel


class ReplacedTokens(TokenClassifier, kind="replaced-tokens"):
    """Replaced token detection: log-odds that each token was replaced, and the generator that replaces tokens (§2).

    generator: its size relative to the model: heads, with them the width, and feed-forward layers are that share of the
               model's; the number of layers is the same. Both share token, type and position embeddings (§3.2).
    """

    labels: Annotated[int, Field(ge=1, le=1)] = 1
    transform: Transform | None = Transform(norm=NoNorm())
    generator: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25

    def module_for(self, model: HeadedModel) -> HeadModule:
        assert isinstance(model, Transformer)
        return ReplacedTokensHead(self, model)

    def cost_for(self, model: HeadedModel, tokens: int = 0) -> Cost:
        assert isinstance(model, Transformer) and model.encoder is not None
        position = model.encoder.position
        shared = model.encoder.embedding.table(model.vocab_size, model.d_model) + _types(model)
        if isinstance(position, Learned):
            width = model.encoder.embedding.width_of(model.d_model)
            shared += ((model.max_positions or 0) + position.offset) * width
        own = self.cost(model.d_model, model.vocab_size, tokens)
        return own + self.generator_of(model).cost(tokens) + Cost(-shared)

    def kept(self) -> Head:
        return TokenClassifier(labels=self.labels, transform=self.transform, dropout=self.dropout)

    def generator_of(self, model: Transformer) -> Transformer:
        """Return the spec of a model's generator. Raises ValueError unless the model is an encoder of tokens."""
        if model.encoder is None or model.decoder is not None or not isinstance(model.encoder.embedding, Embedding):
            raise ValueError("the head replaced-tokens is for encoders of tokens, such as the preset electra-small")
        block, table = model.encoder.blocks[0], model.encoder.embedding.width_of(model.d_model)
        n_heads, d_ff = getattr(block.attention, "n_heads", 1), getattr(block.feedforward, "d_ff", model.d_model)
        fewer = max(1, round(n_heads * self.generator))
        d_model = fewer * (model.d_model // n_heads)
        width = None if table == d_model else table
        return model.replace(
            {
                "d_model": d_model,
                "encoder.embedding.width": width,
                "encoder.blocks.*.attention.n_heads": fewer,
                "encoder.blocks.*.feedforward.d_ff": max(1, round(d_ff * self.generator)),
                "head": LanguageModel(bias=True, transform=Transform(width=width)),
                "classification_head": None,
            }
        )


def _types(model: Transformer) -> int:
    assert model.encoder is not None and isinstance(model.encoder.embedding, Embedding)
    return model.encoder.embedding.token_types * model.encoder.embedding.width_of(model.d_model)


class Replacement(NamedTuple):
    """Output of a generator: the sums of its loss, the tokens with its samples filled in, and which tokens differ from the
    original ones (a sample that equals the original is not replaced)."""

    sums: LossSums
    ids: Int[Tensor, "B T"]
    replaced: Bool[Tensor, "B T"]


class ReplacedTokensHead(TokenClassifierHead):
    """The module of `ReplacedTokens`."""

    def __init__(self, spec: ReplacedTokens, model: Transformer) -> None:
        super().__init__(spec, model.d_model)
        self.generator = TransformerModel(spec.generator_of(model))

    def tie(self, stack: StackModule) -> None:
        encoder: Any = self.generator.encoder
        encoder.embedding.weight, encoder.embedding.types = stack.embedding.weight, stack.embedding.types
        if isinstance(stack.position, LearnedEmbedding):
            encoder.position.weight = stack.position.weight
        self.generator.tie()

    def replace(self, inputs: dict[str, Any], labels: Int[Tensor, "B T"]) -> Replacement:
        """Fill in the masked tokens of the inputs; `labels` are the original tokens there, −100 elsewhere.

        Tokens are drawn from the generator's soft-max, with a fixed seed in evaluation.
        """
        hidden = self.generator.hidden(**inputs)
        head: Any = self.generator.head
        sums = head.loss(hidden, labels)
        places = labels != IGNORE
        with torch.no_grad():
            samples = sample(head(hidden[places][None])[0], None if self.training else 0)
        ids = inputs["ids"].clone()
        ids[places] = samples
        replaced = torch.zeros_like(places)
        replaced[places] = samples != labels[places]
        return Replacement(sums, ids, replaced)


def sample(logits: Float[Tensor, "N V"], seed: int | None) -> Int[Tensor, " N"]:
    """Draw one index from each row's soft-max as argmax p / e, e ~ Exp(1); without a seed by `own_draws`."""
    device = logits.device
    random = own_draws(device) if seed is None else torch.Generator(device).manual_seed(seed)
    noise = torch.empty_like(logits, dtype=torch.float32).exponential_(generator=random)
    return (logits.float().softmax(-1) / noise).argmax(-1)


def published(model: TransformerModel) -> TransformerModel:
    """Return the model without the parts that only pre-training needs: the generator of a discriminator."""
    head = model.spec.head
    kept = None if head is None else head.kept()
    return model if kept == head else replace(model, {"head": kept}).model
