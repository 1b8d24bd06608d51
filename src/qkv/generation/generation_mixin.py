"""`GenerationMixin`: the `generate` method of models, from tensors to a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, cast

from torch import Tensor

from ..core.layout import Layout
from ..core.several import in_our_names, worded
from ..nn.models.joint import MediaInputs
from .generate import generate
from .greedy_search import Stream
from .logits_processors import Processor
from .model_interface import DecodingModel
from .prompts import Ids
from .settings import Generation, GenerationOptions
from .stopping import Stop


class ModelOptions(GenerationOptions, total=False):
    """Keyword options that a model's `generate` passes on to `qkv.generation.generate`."""

    target: Ids | None
    target_layout: Layout | None
    media: MediaInputs | None
    settings: Generation | None
    stop: Stop | None
    stream: Stream | None
    processors: Sequence[Processor]
    seeds: Sequence[int] | None
    draft: DecodingModel | None


class GenerationMixin:
    """Adds `generate` to a model that has `start` and `step` (see `model_interface.Decoder`)."""

    @worded
    @in_our_names(*ModelOptions.__annotations__)
    def generate(
        self,
        ids: Ids,
        *,
        attention_mask: Tensor | None = None,
        layout: Layout | None = None,
        bos_id: int | None = None,
        eos_id: int | Sequence[int] | None = None,
        pad_id: int | None = None,
        **options: Unpack[ModelOptions],
    ) -> Tensor:
        """Return (B · num_samples, W + T) ids: the decoder's prompt, then the new tokens, padded with `pad_id`.

        For a decoder-only model prompts keep their width W, with padding moved to the left, so `out[:, W:]` holds the
        new tokens, padded on the right; for an encoder–decoder rows begin with the starting token. `pad_id` is by
        default the first `eos_id`, or 0. Options (`num_beams`, `temperature`, `max_new_tokens` …) and errors are the
        same as in `qkv.generation.generate`, which can also return scores. transformers' `input_ids`, `eos_token_id`,
        `pad_token_id` and `decoder_start_token_id` are accepted for `ids`, `eos_id`, `pad_id` and `bos_id`.
        """
        model = cast(DecodingModel, self)
        if pad_id is None:
            first = eos_id if isinstance(eos_id, int) or eos_id is None else next(iter(eos_id), None)
            pad_id = 0 if first is None else first
        out = generate(
            model, ids, attention_mask=attention_mask, layout=layout, bos_id=bos_id, eos_id=eos_id, **options
        )
        width = ids.shape[1] if isinstance(ids, Tensor) and not model.is_encoder_decoder else 0
        return out.tensor(pad_id, model.device, width)
