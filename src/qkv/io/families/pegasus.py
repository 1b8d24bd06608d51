"""PEGASUS (Zhang et al. 2020): an encoder–decoder with pre-norm and sinusoidal positions, all sines before all cosines."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Sinusoidal
from ..hub.family import Class, Family
from ..hub.names import Row
from .bart import FIELDS, HARMLESS, NAMES, PLACES, bart
from .classes import BARE

pegasus = partial(bart, normed=False, pre_norm=True, position=Sinusoidal(arrangement="concatenated"))


def positions(spec: Transformer) -> dict[str, Tensor]:
    """The sinusoidal positions of both stacks, computed in double precision as `transformers` does."""
    width = spec.d_model
    angle = np.arange(spec.max_positions or 0)[:, None] / np.power(10000, 2 * np.arange(width // 2) / width)
    table = torch.from_numpy(np.concatenate([np.sin(angle), np.cos(angle)], 1)).float()
    return {f"model.{stack}.embed_positions.weight": table.clone() for stack in ("encoder", "decoder")}


SIZES: dict[str, dict[str, Any]] = {
    "pegasus-large": {"vocab_size": 96103, "n_layers": 16, "activation": "relu", "scaled": True}
}

FAMILY = Family(
    model_type="pegasus",
    make=pegasus,
    classes={"PegasusForConditionalGeneration": Class(), "PegasusModel": BARE},
    prefix="model.",
    is_encoder_decoder=True,
    fields=FIELDS,
    places=PLACES,
    harmless={
        **HARMLESS,
        "normalize_before": True,
        "add_final_layer_norm": True,
        "normalize_embedding": False,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 1,
    },
    computed=positions,
    names=(
        *NAMES,
        Row("model.[encoder,decoder].layer_norm.*", "[encoder,decoder].norm.*"),
        Row("model.encoder.embed_positions.weight", ""),  # sines, computed here
        Row("model.decoder.embed_positions.weight", ""),
    ),
)
