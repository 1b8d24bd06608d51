"""Models that generate: decoders and encoder–decoders."""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import modeling_outputs as outputs

from ...core.layout import Layout
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import Transformer, TransformerModel
from .base import QkvPreTrainedModel, of_one_stack, with_head
from .cache import QkvCache
from .config import QkvConfig
from .inputs import check_positions, layout_of, read_by, refuse_others, token_loss


class _Generating(QkvPreTrainedModel, transformers.GenerationMixin):
    """Base class of models that `generate` with qkv's cache."""

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], *about: Any
    ) -> None:
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = QkvCache()


class _Backbone(nn.Module):
    """What the output matrix reads, for trainers that compute the loss from there. Its parameters are the model's."""

    _tp_plan = _pp_plan = None

    def __init__(self, model: QkvForCausalLM) -> None:
        super().__init__()
        self._of = [model]  # not a submodule

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> outputs.BaseModelOutputWithPast:
        refuse_others(options, position_ids)
        (model,), ids = self._of, read_by(input_ids, inputs_embeds)
        hidden = model._hidden(ids, layout_of(ids, attention_mask, position_ids))
        return outputs.BaseModelOutputWithPast(model.model.head.transformed(hidden))


class QkvForCausalLM(_Generating):
    """A decoder with a language-model head. `labels` equal the ids, and are shifted here, as everywhere in transformers."""

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        if spec.decoder is None or spec.is_encoder_decoder:
            raise ValueError("a causal language model is a decoder alone; use the Auto class of this spec's task")
        return with_head(spec, LanguageModel, LanguageModel())

    @property
    def base_model(self) -> nn.Module:
        """The decoder without the output matrix."""
        return _Backbone(self)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: QkvCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> outputs.CausalLMOutputWithPast:
        refuse_others(options, position_ids)
        ids = read_by(input_ids, inputs_embeds)
        if use_cache and past_key_values is None and not self.training:
            past_key_values = QkvCache()
        run = self._run(ids, attention_mask, position_ids, past_key_values, logits_to_keep)
        logits, seen = self._seen(run, output_attentions, output_hidden_states)
        loss = None if labels is None else token_loss(logits, labels, num_items_in_batch, shift=True)
        return outputs.CausalLMOutputWithPast(loss, logits, past_key_values, **of_one_stack(seen))

    def _run(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, past: QkvCache | None, keep: int) -> Any:
        if past is not None and not isinstance(past, QkvCache):
            raise ValueError(f"past_key_values of a qkv model are a QkvCache, not a {type(past).__name__}")
        if past is None:
            layout = layout_of(ids, mask, positions)
            return lambda: self.model.head(self._hidden(ids, layout)[:, -keep:])
        if past.cache is None:
            past.cache = self.model.start(len(ids))
        layout, cache = layout_of(ids, mask, positions, past.cache.length), past.cache
        if cache.length:
            check_positions(positions, mask, cache, ids.shape[1])
        return lambda: self.model.step(ids, cache, layout, all_positions=True)[:, -keep:]


class _Encoder(nn.Module):
    """The encoder as `generate` calls it. It has no parameters: they are the model's."""

    main_input_name = "input_ids"

    def __init__(self, model: QkvForSeq2SeqLM) -> None:
        super().__init__()
        self._of = [model]  # not a submodule

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> Any:
        (model,), ids = self._of, read_by(input_ids, inputs_embeds)
        layout = layout_of(ids, attention_mask, None)
        attends, states = options.get("output_attentions"), options.get("output_hidden_states")
        memory, seen = model._seen(lambda: model.model.encoder(ids, layout), attends, states)
        return outputs.BaseModelOutput(memory, **of_one_stack(seen))


class QkvForSeq2SeqLM(_Generating):
    """An encoder–decoder. `labels` are the targets; the decoder reads them shifted to the right, after
    `config.decoder_start_token_id`."""

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        if not spec.is_encoder_decoder:
            raise ValueError("a sequence-to-sequence model has an encoder and a decoder; this spec has one stack")
        return with_head(spec, LanguageModel, LanguageModel())

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return _Encoder(self)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """[start, y₁ … yₙ₋₁], with padding in place of −100."""
        start = self.config.decoder_start_token_id
        start = self.config.bos_token_id if start is None else start
        if start is None:
            raise ValueError("set config.decoder_start_token_id: what the decoder begins with")
        padding = 0 if self.config.pad_token_id is None else self.config.pad_token_id
        shifted = F.pad(labels[:, :-1], (1, 0), value=start)
        return shifted.masked_fill(shifted == -100, padding)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        past_key_values: QkvCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> outputs.Seq2SeqLMOutput:
        refuse_others(options)
        seen_before: dict[str, Any] = {}
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(
                input_ids,
                attention_mask,
                inputs_embeds,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
            )
            names = ("hidden_states", "attentions")
            seen_before = {f"encoder_{n}": encoder_outputs[n] for n in names if encoder_outputs.get(n) is not None}
        memory: Tensor = encoder_outputs[0]
        if decoder_input_ids is None and decoder_inputs_embeds is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        target = read_by(decoder_input_ids, decoder_inputs_embeds, "decoder_input_ids, decoder_inputs_embeds or labels")
        if use_cache and past_key_values is None and labels is None and not self.training:
            past_key_values = QkvCache()
        source = layout_of(memory[..., 0], attention_mask, None)
        run = self._run(target, decoder_attention_mask, memory, source, past_key_values)
        logits, seen = self._seen(run, output_attentions, output_hidden_states)
        loss = None if labels is None else token_loss(logits, labels, num_items_in_batch)
        about = {name: value for name, value in {**seen_before, **seen}.items() if value is not None}
        past: Any = past_key_values
        return outputs.Seq2SeqLMOutput(loss, logits, past, encoder_last_hidden_state=memory, **about)

    def _run(
        self, ids: Tensor, mask: Tensor | None, memory: Tensor, source: Layout | None, past: QkvCache | None
    ) -> Any:
        model: TransformerModel = self.model
        decoder, head = model.decoder, model.head
        assert decoder is not None and head is not None
        if past is None:
            layout = layout_of(ids, mask, None)
            assert layout is not None
            return lambda: head(decoder(ids, layout, memory, source))
        if past.cache is None:
            assert source is not None
            past.cache = model.start_from(memory, source)
        layout, cache = layout_of(ids, mask, None, past.cache.length), past.cache
        return lambda: model.step(ids, cache, layout, all_positions=True)
