"""`QkvPreTrainedModel`: parameters, initialization, and what models of all tasks have."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import modeling_outputs as outputs

from ...core.spec import SCHEMA
from ...nn.activations import record, sites
from ...nn.models.build import outline
from ...nn.models.heads.base import Head
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import Transformer
from ..directories.build import build
from .config import QkvConfig
from .inputs import layout_of, read_by, refuse_others


class QkvPreTrainedModel(transformers.PreTrainedModel):
    """Base class: the parameters are qkv's, by qkv's names below `model.`, drawn or loaded as transformers asks."""

    config_class = QkvConfig
    config: QkvConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["BlockModule"]  # noqa: RUF012
    _supports_sdpa = _supports_flash_attn = True  # `attend` chooses the kernel

    def __init__(self, config: QkvConfig) -> None:
        super().__init__(config)
        spec = self.fitted(config.spec, config)
        config.qkv = {"schema": SCHEMA, **spec.to_dict()}
        self.model: Any = build(
            spec, initialized=False, device=torch.get_default_device(), dtype=torch.get_default_dtype()
        )
        first: dict[int, str] = {}
        self._tied_weights_keys = {
            name: first[id(parameter)]
            for name, parameter in self.named_parameters(remove_duplicate=False)
            if first.setdefault(id(parameter), name) != name
        }
        self._start: tuple[nn.Module, Any] | None = None
        self.post_init()

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        """The spec with the head that this class needs. A head of another kind is replaced by a new one."""
        return spec

    @classmethod
    def can_generate(cls) -> bool:
        return issubclass(cls, transformers.GenerationMixin)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Fill what was not loaded: parameters by the spec's initialization, buffers that files do not have as it makes
        them."""
        name = next((name for name, each in self.model.named_modules() if each is module), None)
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        if name is None or not own:
            return
        if self._start is None:
            self._start = outline(self.model.spec, seed=self.config.seed)
        made, draws = self._start
        for key, tensor in own:
            path = f"{name}.{key}" if name else key
            if getattr(tensor, "_is_hf_initialized", False) or tensor.is_meta:
                continue
            if draws is not None and path in draws:
                tensor.copy_(draws.value(path))
            else:
                start: Any = made.get_submodule(name)
                tensor.copy_(getattr(start, key))

    # -- parts that other libraries ask for ----------------------------------------------------------------------

    def get_input_embeddings(self) -> nn.Module:
        first = self.model.encoder if self.model.encoder is not None else self.model.decoder
        return first.embedding

    def get_output_embeddings(self) -> nn.Module | None:
        head = self.model.head
        return head if isinstance(self.model.spec.head, LanguageModel) else None

    def get_decoder(self) -> nn.Module:
        return self

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: object = None, **options: Any) -> None:
        """Keep each block's input only, and compute the block again in the backward pass."""
        self.model.recompute("blocks")

    def gradient_checkpointing_disable(self) -> None:
        self.model.recompute("none")

    @property
    def is_gradient_checkpointing(self) -> bool:
        return any(
            stack is not None and stack.recompute != "none" for stack in (self.model.encoder, self.model.decoder)
        )

    @torch.no_grad()
    def resize_token_embeddings(  # type: ignore[override]  # the table is qkv's
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """Give the vocabulary another size. Rows of known tokens stay, and new ones are the mean of the known, or with
        `mean_resizing=False` drawn as at the start."""
        before = self.model.vocab_size
        size = before if new_num_tokens is None else new_num_tokens
        if pad_to_multiple_of:
            size = -(-size // pad_to_multiple_of) * pad_to_multiple_of
        if size == before:
            return self.get_input_embeddings()
        spec = self.model.spec.replace({"vocab_size": size})
        if getattr(spec, "source_vocab_size", None) is not None:
            raise ValueError("this model has two vocabularies; build it again from a spec with the sizes that you want")
        like = next(self.model.parameters())
        made = build(spec, device=like.device, dtype=like.dtype, seed=self.config.seed)
        old = self.model.state_dict()
        for name, new in made.state_dict().items():
            if new.shape == old[name].shape:
                new.copy_(old[name])
                continue
            kept = min(before, size)
            if mean_resizing:
                new.copy_(old[name].float().mean(0).to(new.dtype).expand_as(new))
            new[:kept] = old[name][:kept]
        self.model, self._start = made.train(self.model.training), None
        self.config.qkv, self.config.vocab_size = {"schema": SCHEMA, **spec.to_dict()}, size
        return self.get_input_embeddings()

    # -- running -------------------------------------------------------------------------------------------------

    def _names(self, attentions: bool | None, states: bool | None) -> list[str]:
        """The names of the activations that are wanted: weights of attention, or the inputs of layers and the outputs."""
        attentions = self.config.output_attentions if attentions is None else attentions
        states = self.config.output_hidden_states if states is None else states
        inputs = ("*coder.layers.?.input", "*coder.layers.??.input", "*coder.layers.???.input", "*coder.output")
        patterns = (*(("*.weights",) if attentions else ()), *(inputs if states else ()))
        return [name for name in sites(self.model) if any(fnmatchcase(name, pattern) for pattern in patterns)]

    def _hidden(self, ids: Tensor, layout: Any, token_types: Tensor | None = None) -> Tensor:
        """The last hidden states of one stack, which reads ids, or vectors in their places."""
        if ids.ndim == 3 and layout is not None:
            stack = self.model.encoder if self.model.decoder is None else self.model.decoder
            hidden: Tensor = stack(ids, layout, token_types=token_types)
        else:
            hidden = self.model.hidden(ids, layout=layout, token_types=token_types)
        return hidden

    def _seen(self, run: Any, attentions: bool | None, states: bool | None) -> tuple[Any, dict[str, Any]]:
        """What `run()` returns, and the weights and states of its layers by transformers' names for a stack."""
        names = self._names(attentions, states)
        if not names:
            return run(), {}
        with record(self.model, names) as found:
            result = run()
        seen: dict[str, Any] = {}
        for stack in ("encoder", "decoder"):
            part = {name: found[name] for name in found if name.startswith(f"{stack}.")}
            inputs = [x for name, x in part.items() if name.endswith(".input") and name.count(".") == 3]
            if inputs:
                seen[f"{stack}_hidden_states"] = (*inputs, part[f"{stack}.output"])
            for kind, key in (("attention", f"{stack}_attentions"), ("cross", "cross_attentions")):
                weights = tuple(x for name, x in part.items() if name.endswith(f".{kind}.weights"))
                seen |= {key: weights} if weights else {}
        return result, seen


def with_head(spec: Transformer, kind: type[Head], new: Head | None) -> Transformer:
    return spec if isinstance(spec.head, kind) else spec.replace({"head": new})


class QkvModel(QkvPreTrainedModel):
    """Hidden states: the model without its head (`AutoModel`)."""

    @classmethod
    def fitted(cls, spec: Transformer, config: QkvConfig) -> Transformer:
        return spec if spec.head is None else spec.replace({"head": None})

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **options: Any,
    ) -> outputs.BaseModelOutput:
        refuse_others(options, position_ids)
        names = "input_ids, inputs_embeds, or pixel_values if the model reads images"
        ids = read_by(pixel_values if input_ids is None else input_ids, inputs_embeds, names)
        layout = None if pixel_values is not None else layout_of(ids, attention_mask, position_ids)
        run = partial(self._hidden, ids, layout, token_type_ids)
        hidden, seen = self._seen(run, output_attentions, output_hidden_states)
        return outputs.BaseModelOutput(hidden, **of_one_stack(seen))


def of_one_stack(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The names of a model of one stack: hidden_states and attentions."""
    return {name.partition("_")[2]: value for name, value in seen.items()}
