"""Compare exported graphs with their model on random inputs: padding on the left, a prompt and steps after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...nn.layers.patches import PatchEmbedding
from ...nn.models.recurrent.model import RecurrentModel
from ...nn.models.transformer import TransformerModel

Exportable = TransformerModel | RecurrentModel


class Graphs(Protocol):
    """Exported graphs, run by name."""

    def __call__(self, name: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]: ...


def nothing(rows: int, sizes: Sequence[int | str], dtype: torch.dtype = torch.float32) -> Tensor:
    """The state before the first token: zeros, of length 0 along axes with a name."""
    return torch.zeros(rows, *(0 if isinstance(size, str) else size for size in sizes), dtype=dtype)


@torch.no_grad()
def error(model: Exportable, graphs: Graphs) -> float:
    """The largest difference between outputs of the graphs and of the model at real tokens, over the largest output."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, RecurrentModel):
        return _recurrent(model, graphs, generator)
    first = model.encoder if model.encoder is not None else model._output
    if isinstance(first.embedding, PatchEmbedding):
        spec = first.embedding.spec
        source = torch.rand(2, spec.channels, *spec.image, generator=generator)
    else:
        source = torch.randint(model.spec.source_vocabulary, (2, _length(model, 9)), generator=generator)
    if model.is_encoder_decoder:
        return _encoder_decoder(model, graphs, source, generator)
    if isinstance(first.embedding, PatchEmbedding):
        return _differ(graphs("model", {"pixel_values": source}), model(source))
    mask = torch.ones_like(source)
    mask[0, : source.shape[1] // 3] = 0
    if model.decoder is not None and model.head is not None and model.spec.predicts_tokens:
        return _decoder(model, graphs, source, mask)
    types = torch.zeros_like(source)
    types[:, source.shape[1] // 2 :] = 1
    inputs = {"input_ids": source, "attention_mask": mask}
    if model.spec.token_types > 1:
        inputs["token_type_ids"] = types
    wanted = model(source, attention_mask=mask, token_types=inputs.get("token_type_ids"))
    return _differ(graphs("model", inputs), wanted, mask)


def _length(model: TransformerModel, wanted: int) -> int:
    return wanted if model.max_positions is None else min(wanted, model.max_positions)


def _decoder(model: TransformerModel, graphs: Graphs, ids: Tensor, mask: Tensor) -> float:
    """A prompt with padding on the left, then a step of two tokens and one of one."""
    wanted = model(ids, attention_mask=mask)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    past: dict[str, Tensor] = {}
    parts, begin = [], 0
    for end in sorted({max(ids.shape[1] - 3, 1), max(ids.shape[1] - 1, 1), ids.shape[1]}):
        here = slice(begin, end)
        out = graphs(
            "model",
            {"input_ids": ids[:, here], "attention_mask": mask[:, :end], "position_ids": positions[:, here], **past},
        )
        parts.append(out.pop("logits"))
        past = _past(out)
        begin = end
    return _difference(torch.cat(parts, 1)[mask.bool()], wanted[mask.bool()])


def _encoder_decoder(model: TransformerModel, graphs: Graphs, source: Tensor, generator: torch.Generator) -> float:
    target = torch.randint(model.vocab_size, (2, _length(model, 5)), generator=generator)
    texts = source.ndim == 2
    mask = torch.ones_like(source) if texts else None
    if mask is not None:
        mask[0, -2:] = 0
    wanted = model(source, target, attention_mask=mask) if texts else model(source, target)
    masks = {} if mask is None else {"attention_mask": mask}
    named = {"input_ids": source} if texts else {"pixel_values": source}
    memory = graphs("encoder_model", {**named, **masks})["last_hidden_state"]
    masks = {} if mask is None else {"encoder_attention_mask": mask}
    out = graphs("decoder_model", {"input_ids": target[:, :2], "encoder_hidden_states": memory, **masks})
    parts, past = [out.pop("logits")], _past(out)
    for i in range(2, target.shape[1]):
        places = {"position_ids": torch.full((len(target), 1), i)}
        out = graphs("decoder_with_past_model", {"input_ids": target[:, i : i + 1], **masks, **places, **past})
        parts.append(out.pop("logits"))
        past |= _past(out)
    return _difference(torch.cat(parts, 1), wanted)


def _recurrent(model: RecurrentModel, graphs: Graphs, generator: torch.Generator) -> float:
    """A source with padding on the left and one with padding on the right, and a target token by token."""
    source = torch.randint(model.spec.source_vocabulary, (2, 9), generator=generator)
    target = torch.randint(model.vocab_size, (2, 4), generator=generator)
    mask = torch.ones_like(source)
    mask[0, :2] = 0
    mask[1, -4:] = 0
    wanted = model(source, target, attention_mask=mask)
    past = _past(graphs("encoder_model", {"input_ids": source, "attention_mask": mask}))
    parts = []
    for ids in target.split(1, 1):
        out = graphs("decoder_model", {"input_ids": ids, "encoder_attention_mask": mask, **past})
        parts.append(out.pop("logits"))
        past |= _past(out)
    return _difference(torch.cat(parts, 1), wanted)


def _past(present: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the outputs of one pass to the inputs of the next."""
    return {name.replace("present", "past_key_values"): x for name, x in present.items()}


def _differ(out: Mapping[str, Tensor], wanted: Tensor, mask: Tensor | None = None) -> float:
    """The difference of what a model without a past returns: two scores of a span are two outputs of the graph."""
    tensors = list(out.values())
    if "start_logits" in out:
        tensors = [torch.stack(tensors, -1)]
    got = out.get("sentence_embedding", tensors[0])
    if mask is not None and got.ndim == 3:
        got, wanted = got[mask.bool()], wanted[mask.bool()]
    return _difference(got, wanted)


def _difference(got: Tensor, wanted: Tensor) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-12))
