"""wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021): an encoder of a waveform with a CTC head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm, NoNorm
from ...nn.layers.waveform import Waveform
from ...nn.models.block import Block
from ...nn.models.heads.ctc import CTC
from ...nn.models.initialization import Normal
from ...nn.models.placement import PostNorm, PreNorm
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Config, Field, Key, changed
from ..hub.names import Row
from ..hub.transforms import Shaped
from .classes import BARE
from .places import Place, places

WIDTHS, KERNELS, STRIDES = (512,) * 7, (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)


def wav2vec2(
    *,
    vocab_size: int = 32,
    widths: tuple[int, ...] = WIDTHS,
    kernels: tuple[int, ...] = KERNELS,
    strides: tuple[int, ...] = STRIDES,
    convolution_bias: bool = False,
    features: Literal["group", "layer"] = "group",
    features_activation: Activation = "gelu",
    project_norm: bool = True,
    positions: int = 128,
    groups: int = 16,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu",
    pre_norm: bool = False,
    eps: float = 1e-5,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation_dropout: float = 0.1,
    projection_dropout: float = 0.0,
    head_dropout: float = 0.1,
    blank: int = 0,
    zero_infinity: bool = False,
    head: bool = True,
) -> Transformer:
    """An encoder of samples and a CTC head whose blank is the padding token. `pre_norm` is "stable layer norm" on the Hub:
    norms before each sublayer and after the last, instead of after each sublayer and after the positions."""
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout, bias=True, out_bias=True),
        feedforward=FeedForward(d_ff=d_ff, activation=activation, dropout=activation_dropout),
        norm=norm,
        placement=PreNorm() if pre_norm else PostNorm(),
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder=Stack(
            embedding=Waveform(
                widths=widths,
                kernels=kernels,
                strides=strides,
                bias=convolution_bias,
                features=features,
                activation=features_activation,
                project_norm=project_norm,
                projection_dropout=projection_dropout,
                positions=positions,
                groups=groups,
                eps=eps,
                norm=NoNorm() if pre_norm else norm,
                dropout=dropout,
            ),
            blocks=(block,) * n_layers,
            norm=norm if pre_norm else NoNorm(),
        ),
        head=CTC(blank=blank, dropout=head_dropout, zero_infinity=zero_infinity) if head else None,
        initialization=Normal(scale_residual=False),
    )


def hubert(**sizes: Any) -> Transformer:
    """An encoder as `wav2vec2` makes it."""
    return wav2vec2(**sizes)


LARGE: dict[str, Any] = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
STABLE: dict[str, Any] = {"pre_norm": True, "features": "layer", "convolution_bias": True}

SIZES: dict[str, dict[str, Any]] = {
    "wav2vec2-base": {},
    "wav2vec2-large": LARGE,
    "wav2vec2-large-lv60": {**LARGE, **STABLE},
    "hubert-xlarge": {**LARGE, **STABLE, "d_model": 1280, "n_layers": 48, "d_ff": 5120},
}


@dataclass(frozen=True)
class OfConvolutions:
    """A list of whole numbers, one for each convolution."""

    key: str
    size: str
    default: tuple[int, ...]

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: self.default}

    def read(self, config: Config) -> tuple[int, ...]:
        return tuple(config[self.key])

    def write(self, value: tuple[int, ...], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {self.key: list(value)}


FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 32),
    OfConvolutions("conv_dim", "widths", WIDTHS),
    OfConvolutions("conv_kernel", "kernels", KERNELS),
    OfConvolutions("conv_stride", "strides", STRIDES),
    Key("conv_bias", "convolution_bias", False),
    Key("feat_extract_norm", "features", "group", {"group": "group", "layer": "layer"}),
    Key("feat_extract_activation", "features_activation", "gelu", ACTIVATIONS),
    Key("feat_proj_dropout", "projection_dropout", 0.0),
    Key("num_conv_pos_embeddings", "positions", 128),
    Key("num_conv_pos_embedding_groups", "groups", 16),
    Key("hidden_size", "d_model", 768),
    Key("num_hidden_layers", "n_layers", 12),
    Key("num_attention_heads", "n_heads", 12),
    Key("intermediate_size", "d_ff", 3072),
    Key("hidden_act", "activation", "gelu", ACTIVATIONS),
    Key("do_stable_layer_norm", "pre_norm", False),
    Key("layer_norm_eps", "eps", 1e-5),
    Key("hidden_dropout", "dropout", 0.1, also=("hidden_dropout_prob",)),
    Key("attention_dropout", "attention_dropout", 0.1),
    Key("activation_dropout", "activation_dropout", 0.1),
    Key("final_dropout", "head_dropout", 0.1),
    Key("pad_token_id", "blank", 0),
    Key("ctc_zero_infinity", "zero_infinity", False),
)

PLACES: dict[str, Place] = {
    **places("encoder"),
    **{size: f"encoder.embedding.{size}" for size in ("widths", "kernels", "strides", "features", "project_norm")},
    **{size: f"encoder.embedding.{size}" for size in ("projection_dropout", "positions", "groups", "eps")},
    "convolution_bias": "encoder.embedding.bias",
    "features_activation": "encoder.embedding.activation",
    "activation_dropout": "encoder.blocks.0.feedforward.dropout",
    "pre_norm": lambda spec: isinstance(spec.output.blocks[0].placement, PreNorm),
    "head_dropout": "head.dropout",
    "blank": "head.blank",
    "zero_infinity": "head.zero_infinity",
}

# Of training: sounds are masked, layers are dropped, losses are averaged. The rest belongs to classes that are not built.
HARMLESS: dict[str, Any] = {
    **dict.fromkeys(("layerdrop", "apply_spec_augment", "ctc_loss_reduction", "feat_extract_dropout"), ANY),
    **dict.fromkeys(
        (f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")), ANY
    ),
    **dict.fromkeys(("mask_channel_length", "mask_channel_min_space", "mask_channel_other", "mask_channel_prob"), ANY),
    **dict.fromkeys(("mask_channel_selection", "mask_time_min_space", "mask_time_other", "mask_time_selection"), ANY),
    **dict.fromkeys(
        ("num_codevectors_per_group", "num_codevector_groups", "codevector_dim", "proj_codevector_dim"), ANY
    ),
    **dict.fromkeys(("contrastive_logits_temperature", "num_negatives", "diversity_loss_weight"), ANY),
    **dict.fromkeys(
        ("feat_quantizer_dropout", "use_weighted_layer_sum", "classifier_proj_size", "tokenizer_class"), ANY
    ),
    **dict.fromkeys(("tdnn_dim", "tdnn_kernel", "tdnn_dilation", "xvector_output_dim", "num_feat_extract_layers"), ANY),
    **dict.fromkeys(("adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size"), ANY),
    "add_adapter": False,
    "conv_pos_batch_norm": False,
}

_POSITIONS = "encoder.pos_conv_embed.conv"
_SPELLINGS = (("parametrizations.weight.original0", "parametrizations.weight.original1"), ("weight_g", "weight_v"))


def _table(spec: Transformer, prefix: str) -> Table:
    seen, stable = spec.output.embedding, spec.output.norm != NoNorm()
    assert isinstance(seen, Waveform)
    layers, features = f"{prefix}.encoder.layers.{{i}}", f"{prefix}.feature_extractor.conv_layers"
    stem = (
        Row(
            f"{features}.{i}.conv.weight",
            f"encoder.embedding.convolutions.{i}.weight",
            Shaped((-1, seen.widths[i - 1] if i else 1, kernel)),
        )
        for i, kernel in enumerate(seen.kernels)
    )
    placed = (
        row
        for length, direction in _SPELLINGS
        for row in (
            Row(f"{prefix}.{_POSITIONS}.{length}", "encoder.embedding.positions.length", Shaped((1, 1, -1))),
            Row(
                f"{prefix}.{_POSITIONS}.{direction}",
                "encoder.embedding.positions.direction",
                Shaped((spec.d_model, -1, seen.positions)),
            ),
        )
    )
    return (
        *stem,
        Row(f"{features}.{{i}}.conv.bias", "encoder.embedding.convolutions.{i}.bias"),
        Row(f"{features}.{{i}}.layer_norm.*", "encoder.embedding.convolutions.{i}.norm.*"),
        Row(f"{prefix}.feature_projection.layer_norm.*", "encoder.embedding.project_norm.*"),
        Row(f"{prefix}.feature_projection.projection.*", "encoder.embedding.project.*"),
        *placed,
        Row(f"{prefix}.{_POSITIONS}.bias", "encoder.embedding.positions.bias"),
        Row(f"{prefix}.encoder.layer_norm.*", "encoder.norm.*" if stable else "encoder.embedding.norm.*"),
        Row(f"{layers}.attention.[q_proj,k_proj,v_proj,out_proj].*", "encoder.blocks.{i}.attention.[q,k,v,out].*"),
        Row(f"{layers}.layer_norm.*", "encoder.blocks.{i}.norm.attention.*"),
        Row(f"{layers}.feed_forward.intermediate_dense.*", "encoder.blocks.{i}.feedforward.up.*"),
        Row(f"{layers}.feed_forward.output_dense.*", "encoder.blocks.{i}.feedforward.down.*"),
        Row(f"{layers}.final_layer_norm.*", "encoder.blocks.{i}.norm.feedforward.*"),
        Row(f"{prefix}.masked_spec_embed", ""),  # what training shows in place of masked tokens
        Row("lm_head.*", "head.out.*"),
    )


FAMILY = Family(
    model_type="wav2vec2",
    make=wav2vec2,
    classes={"Wav2Vec2ForCTC": Class(), "Wav2Vec2Model": BARE},
    prefix="wav2vec2.",
    fields=FIELDS,
    places=PLACES,
    harmless={**HARMLESS, "adapter_attn_dim": None},
    names=lambda spec: _table(spec, "wav2vec2"),
)

HUBERT = replace(
    FAMILY,
    model_type="hubert",
    make=hubert,
    classes={"HubertForCTC": Class(), "HubertModel": BARE},
    prefix="hubert.",
    fields=changed(FIELDS, Key("feat_proj_layer_norm", "project_norm", True)),
    harmless=HARMLESS,
    names=lambda spec: _table(spec, "hubert"),
)
