"""Whisper (Radford et al. 2022): an encoder of log-mel frames of 30 seconds, and a decoder that writes what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...core.layout import Layout
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.frames import WIDTH, Frames
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Learned, Sinusoidal
from ..hub.family import Class, Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Config, Field, Key
from ..hub.names import Row
from ..hub.transforms import Shaped
from .bart import HARMLESS, NAMES, PLACES
from .classes import BARE
from .places import Place

STRIDES = (1, 2)  # of the encoder's convolutions: two frames for each token


def whisper(
    *,
    vocab_size: int = 51865,
    mels: int = 80,
    frames: int = 3000,
    d_model: int = 384,
    n_layers: int = 4,
    n_heads: int = 6,
    d_ff: int = 1536,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    encoder_heads: int | None = None,
    decoder_heads: int | None = None,
    encoder_d_ff: int | None = None,
    decoder_d_ff: int | None = None,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    max_positions: int = 448,
    head: bool = True,
) -> Transformer:
    """An encoder of at most `frames` log-mel frames and a decoder of tokens, both pre-norm, with keys without bias.

    By default, each stack has the common sizes. The encoder has fixed sinusoidal positions, the decoder learned ones.
    """

    def block(heads: int, d_ff: int, crosses: bool) -> Block:
        attention = Attention(n_heads=heads, dropout=attention_dropout, key_bias=False)
        return Block(
            attention=attention.replace(pattern=causal()) if crosses else attention,
            cross=attention if crosses else None,
            feedforward=FeedForward(d_ff=d_ff, activation=activation, dropout=activation_dropout),
            dropout=dropout,
        )

    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=Frames(mels=mels, frames=frames, strides=STRIDES, dropout=dropout),
            position=Sinusoidal(rates="tensor2tensor", arrangement="concatenated"),
            blocks=(block(encoder_heads or n_heads, encoder_d_ff or d_ff, False),) * (encoder_layers or n_layers),
            norm=LayerNorm(),
        ),
        decoder=Stack(
            embedding=Embedding(dropout=dropout),
            position=Learned(),
            blocks=(block(decoder_heads or n_heads, decoder_d_ff or d_ff, True),) * (decoder_layers or n_layers),
            norm=LayerNorm(),
        ),
        head=LanguageModel() if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "whisper-tiny": {},
    "whisper-base": {"d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048},
    "whisper-small": {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072},
    "whisper-medium": {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
    "whisper-large-v3": {
        "vocab_size": 51866, "mels": 128, "d_model": 1280, "n_layers": 32, "n_heads": 20, "d_ff": 5120,
    },
    "whisper-large-v3-turbo": {
        "vocab_size": 51866, "mels": 128, "d_model": 1280, "n_layers": 32, "decoder_layers": 4, "n_heads": 20, "d_ff": 5120,
    },
}  # fmt: skip


@dataclass(frozen=True)
class SourceLength:
    """The most frames of a sound: two for each of the encoder's positions."""

    size: str = "frames"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"max_source_positions": 1500}

    def read(self, config: Config) -> int:
        return 2 * int(config["max_source_positions"])

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if value % 2:
            raise ValueError(f"max_source_positions counts pairs of frames, and this model reads {value:,} frames")
        return {"max_source_positions": value // 2}


FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 51865),
    Key("num_mel_bins", "mels", 80),
    SourceLength(),
    Key("d_model", "d_model", 384, also=("hidden_size",)),
    Key("encoder_layers", "encoder_layers", 4, also=("num_hidden_layers",)),
    Key("decoder_layers", "decoder_layers", 4),
    Key("encoder_attention_heads", "encoder_heads", 6),
    Key("decoder_attention_heads", "decoder_heads", 6),
    Key("encoder_ffn_dim", "encoder_d_ff", 1536),
    Key("decoder_ffn_dim", "decoder_d_ff", 1536),
    Key("activation_function", "activation", "gelu", ACTIVATIONS),
    Key("dropout", "dropout", 0.0),
    Key("attention_dropout", "attention_dropout", 0.0),
    Key("activation_dropout", "activation_dropout", 0.0),
    Key("max_target_positions", "max_positions", 448),
)

PLACES_HERE: dict[str, Place] = {
    **{size: place for size, place in PLACES.items() if size != "scaled"},
    "mels": "encoder.embedding.mels",
    "frames": "encoder.embedding.frames",
}


def positions(spec: Transformer) -> dict[str, Tensor]:
    """The sinusoidal positions of the encoder."""
    encoder = spec.encoder
    assert encoder is not None and isinstance(encoder.embedding, Frames) and isinstance(encoder.position, Sinusoidal)
    places = Layout.full(encoder.embedding.tokens).positions[0, :, 0]
    return {"model.encoder.embed_positions.weight": encoder.position.encode(places, spec.d_model)}


def names(spec: Transformer) -> Table:
    encoder = spec.encoder
    assert encoder is not None and isinstance(encoder.embedding, Frames)
    widths = (encoder.embedding.mels, spec.d_model)
    stem = (
        row
        for i, width in enumerate(widths)
        for row in (
            Row(
                f"model.encoder.conv{i + 1}.weight",
                f"encoder.embedding.convolutions.{i}.weight",
                Shaped((-1, width, WIDTH)),
            ),
            Row(f"model.encoder.conv{i + 1}.bias", f"encoder.embedding.convolutions.{i}.bias"),
        )
    )
    shared = {"encoder.embedding.weight", "head.bias", "head.weight"}
    return (
        *stem,
        *(part for row in NAMES if row.ours not in shared for part in _apart(row)),
        Row("proj_out.weight", "head.weight"),
        Row("model.[encoder,decoder].layer_norm.*", "[encoder,decoder].norm.*"),
        Row("model.encoder.embed_positions.weight", ""),  # sines, computed here
        Row("model.decoder.embed_positions.weight", "decoder.position.weight"),
    )


def _apart(row: Row) -> Table:
    """A row of all projections of an attention as two: keys have no bias here."""
    together = "[q,k,v,out]"
    if together not in row.ours:
        return (row,)
    return tuple(
        Row(row.theirs.replace(together, some), row.ours.replace(together, some)) for some in ("[q,v,out]", "k")
    )


FAMILY = Family(
    model_type="whisper",
    make=whisper,
    classes={"WhisperForConditionalGeneration": Class(), "WhisperModel": BARE},
    prefix="model.",
    is_encoder_decoder=True,
    fields=FIELDS,
    places=PLACES_HERE,
    harmless={
        "tie_word_embeddings": True,
        **{key: HARMLESS[key] for key in ("encoder_layerdrop", "decoder_layerdrop", "init_std")},
        "scale_embedding": ANY,  # nothing is multiplied by it there
        "use_weighted_layer_sum": ANY,  # of a classifier of sounds, as the next
        "classifier_proj_size": ANY,
        "apply_spec_augment": ANY,  # sounds that are masked in training, as all that follow
        **dict.fromkeys(
            (f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")), ANY
        ),
        "median_filter_width": ANY,  # of the times of words
        "forced_decoder_ids": ANY,  # settings of generation
    },
    computed=positions,
    names=names,
)
