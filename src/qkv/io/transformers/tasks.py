"""Models that read a text or an image and predict with a head."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F
from transformers import modeling_outputs as outputs

from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.heads.vision import ImageClassifier
from ...nn.models.transformer import Transformer
from .base import QkvPreTrainedModel, of_one_stack, with_head
from .config import QkvConfig
from .inputs import check_labels, class_loss, layout_of, one_each, read_by, refuse_others, token_loss


class _OfTokens(QkvPreTrainedModel):
    """Base class of encoders, and decoders, that read tokens and predict with a head."""

    result: Any = outputs.TokenClassifierOutput

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> Any:
        refuse_others(options, position_ids)
        ids = read_by(input_ids, inputs_embeds)
        layout, head = layout_of(ids, attention_mask, position_ids), self.model.head

        def run() -> Tensor:
            hidden = self._hidden(ids, layout, token_type_ids)
            predicted: Tensor = head(hidden, layout=layout) if head.takes_layout else head(hidden)
            return predicted

        logits, seen = self._seen(run, output_attentions, output_hidden_states)
        loss = None if labels is None else self.loss_of(logits, labels, num_items_in_batch)
        return self.result(loss, logits, **of_one_stack(seen))

    def loss_of(self, logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
        return token_loss(logits, labels, items)


class QkvForMaskedLM(_OfTokens):
    """An encoder with a language-model head."""

    result = outputs.MaskedLMOutput

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        return with_head(spec, LanguageModel, LanguageModel())


class QkvForTokenClassification(_OfTokens):
    """A class for each token."""

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        return with_head(spec, TokenClassifier, TokenClassifier(labels=config.num_labels))


class QkvForSequenceClassification(_OfTokens):
    """Classes, a number or several yes and no for each sequence, as `config.problem_type` says or the labels show."""

    result = outputs.SequenceClassifierOutput

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        pool = "first" if spec.decoder is None else "last"
        return with_head(spec, SequenceClassifier, SequenceClassifier(labels=config.num_labels, pool=pool))

    def loss_of(self, logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
        kind = self.config.problem_type
        several = isinstance(labels, Tensor) and labels.is_floating_point() and logits.shape[1] > 1
        if kind == "multi_label_classification" or (kind is None and several):
            check_labels(labels, logits.shape, "class of each text")
            return F.binary_cross_entropy_with_logits(logits.float(), labels.float())
        labels = one_each(labels, logits, "text")
        if kind == "regression" or (kind is None and logits.shape[1] == 1):
            return F.mse_loss(logits.squeeze(-1).float(), labels.float())
        return class_loss(logits, labels)


class QkvForQuestionAnswering(QkvPreTrainedModel):
    """The start and the end of an answer in the text."""

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        return with_head(spec, Span, Span())

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **options: Any,
    ) -> outputs.QuestionAnsweringModelOutput:
        refuse_others(options, position_ids)
        ids = read_by(input_ids, inputs_embeds)
        layout = layout_of(ids, attention_mask, position_ids)

        def run() -> Tensor:
            scores: Tensor = self.model.head.out(self._hidden(ids, layout, token_type_ids))
            return scores

        scores, seen = self._seen(run, output_attentions, output_hidden_states)
        start, end = scores.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            wanted = (start_positions.clamp(0, start.shape[1]), end_positions.clamp(0, end.shape[1]))
            losses = [
                F.cross_entropy(of.float(), at, ignore_index=of.shape[1])
                for of, at in zip((start, end), wanted, strict=True)
            ]
            loss = (losses[0] + losses[1]) / 2
        return outputs.QuestionAnsweringModelOutput(loss, start, end, **of_one_stack(seen))


class QkvForImageClassification(QkvPreTrainedModel):
    """A class for each image."""

    main_input_name = "pixel_values"

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        return with_head(spec, ImageClassifier, ImageClassifier(labels=config.num_labels))

    def forward(
        self,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **options: Any,
    ) -> outputs.ImageClassifierOutput:
        refuse_others(options)
        if pixel_values is None:
            raise ValueError("give pixel_values (batch, channels, height, width)")
        logits, seen = self._seen(lambda: self.model(pixel_values), output_attentions, output_hidden_states)
        loss = None if labels is None else class_loss(logits, one_each(labels, logits, "picture"))
        return outputs.ImageClassifierOutput(loss, logits, **of_one_stack(seen))
