"""Marian (Junczys-Dowmunt et al. 2018; OPUS-MT): the original Transformer with all sines before all cosines."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...nn.positions.absolute import Sinusoidal
from ..hub.family import Class, Family
from ..hub.keys import Key, changed
from ..hub.names import Row
from .bart import FIELDS, HARMLESS, NAMES, PLACES, bart
from .classes import BARE
from .pegasus import positions

marian = partial(bart, normed=False, position=Sinusoidal(arrangement="concatenated"))

SIZES: dict[str, dict[str, Any]] = {
    "opus-mt": {
        "vocab_size": 58101,
        "d_model": 512,
        "n_layers": 6,
        "n_heads": 8,
        "d_ff": 2048,
        "activation": "silu",
        "scaled": True,
        "max_positions": 512,
    }
}

FAMILY = Family(
    model_type="marian",
    make=marian,
    classes={"MarianMTModel": Class(), "MarianModel": BARE},
    prefix="model.",
    is_encoder_decoder=True,
    fields=changed(FIELDS, Key("vocab_size", "vocab_size", 58101, also=("decoder_vocab_size",))),
    places=PLACES,
    harmless={
        **HARMLESS,
        "share_encoder_decoder_embeddings": True,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    computed=positions,
    writes_computed=False,
    names=(
        *NAMES,
        Row("model.encoder.embed_positions.weight", ""),  # sines, computed
        Row("model.decoder.embed_positions.weight", ""),
    ),
)
