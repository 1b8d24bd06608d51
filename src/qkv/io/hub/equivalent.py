"""Models that compute the same function in the form of a Hub family: full matrices in place of products of low rank,
reordered sinusoidal positions, a zero output bias."""

from __future__ import annotations

import re
from typing import Any

import torch

from ...nn.layers.quantized import check_not_quantized
from ...nn.models.build import build
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import Transformer, TransformerModel
from ...nn.positions.absolute import Sinusoidal
from ...nn.pruning.low_rank import multiplied_out, with_full_matrices

MAX_POSITIONS = 1024
"""The longest sequence of an exported model whose own length is not bounded."""

# The axis of each tensor of an encoder–decoder along which the residual stream lies; None if there is no such axis.
_AXES: tuple[tuple[str, int | None], ...] = (
    (r"(encoder|decoder)\.embedding\.weight", 1),
    (r"(encoder|decoder)(\.blocks\.\d+)?\.norm(\.\w+)?\.(weight|bias)", 0),
    (r".*\.(attention|cross)\.[qkv]\.weight", 1),
    (r".*\.(attention|cross)\.[qkv]\.bias", None),
    (r".*\.(attention|cross)\.out\.(weight|bias)", 0),
    (r".*\.feedforward\.(up|gate)\.weight", 1),
    (r".*\.feedforward\.(up|gate)\.bias", None),
    (r".*\.feedforward\.down\.(weight|bias)", 0),
    (r"head\.weight", 1),
    (r"head\.bias", None),
)


def equivalent_specs(spec: Transformer) -> list[Transformer]:
    """The spec, and the specs of equivalent models: with full matrices, and also in the form of `equivalent_spec`."""
    full = with_full_matrices(spec)
    other = equivalent_spec(full)
    return list(dict.fromkeys([spec, full, *([] if other is None else [other])]))


def equivalent_spec(spec: Transformer) -> Transformer | None:
    """The spec of the same function in the form of Marian and PEGASUS, for encoder–decoders with interleaved sinusoidal
    positions: sines before cosines, a bias of the output, and a bounded length. None for other models."""
    encoder, decoder, head = spec.encoder, spec.decoder, spec.head
    if encoder is None or decoder is None or not isinstance(head, LanguageModel):
        return None
    for position in (encoder.position, decoder.position):
        if not isinstance(position, Sinusoidal) or position.arrangement != "interleaved":
            return None
    changes: dict[str, Any] = {f"{stack}.position.arrangement": "concatenated" for stack in ("encoder", "decoder")}
    return spec.replace({**changes, "head.bias": True, "max_positions": spec.max_positions or MAX_POSITIONS})


@torch.no_grad()
def equivalent(model: TransformerModel, spec: Transformer) -> TransformerModel | None:
    """The model of one of `equivalent_specs`, with the same outputs as `model` up to rounding. None if a tensor has no known
    axes.

    Products of low rank are multiplied out. In the form of `equivalent_spec`, all channels of the residual stream are
    permuted as the positions are, and a missing output bias is 0.
    """
    if spec == model.spec:
        return model
    check_not_quantized(model, "conversion into the form of a Hub family")
    model = multiplied_out(model)
    if spec == model.spec:
        return model
    width = spec.d_model
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]).to(model.device)
    state = {}
    for name, tensor in model.state_dict().items():
        axes = [axis for pattern, axis in _AXES if re.fullmatch(pattern, name)]
        if not axes:
            return None
        state[name] = tensor if axes[0] is None else tensor.index_select(axes[0], order)
    new: TransformerModel = build(spec, device=model.device, dtype=model.dtype, initialized=False)
    if "head.bias" not in state:
        state["head.bias"] = torch.zeros_like(new.state_dict()["head.bias"])
    new.load_state_dict(state)
    return new.train(model.training)
