"""ModernBERT (Warner et al. 2024): a pre-norm encoder with rotary positions, GEGLU and windows in two of three layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm, NoNorm
from ...nn.models.block import Block
from ...nn.models.heads.base import Head
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.sequence import Pooling, SequenceClassifier
from ...nn.models.heads.text import TokenClassifier
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Full, Window, full, window
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import UNSAID, Class, Family, at
from ..hub.keys import ACTIVATIONS, ANY, Config, Key
from ..hub.names import Row
from ..hub.transforms import Joined
from .classes import BARE
from .gemma3 import LocalRopes, Ropes
from .places import places
from .qwen2 import FULL, SLIDING, LayerTypes

GLOBAL = Rotary(base=160000.0)


def modernbert(
    *,
    vocab_size: int = 50368,
    d_model: int = 768,
    n_layers: int = 22,
    n_heads: int = 12,
    d_ff: int = 1152,
    activation: Activation = "gelu",
    attention_bias: bool = False,
    feedforward_bias: bool = False,
    embedding_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    dropout: float = 0.0,
    eps: float = 1e-5,
    norm_bias: bool = False,
    tied: bool = True,
    position: Position | None = None,
    local_position: Position | None = None,
    windows: Sequence[int | None] | int | None = 64,
    period: int = 3,
    max_positions: int = 8192,
    head: bool = True,
    head_activation: Activation = "gelu",
    head_bias: bool = False,
    output_bias: bool = True,
    pool: Pooling = "first",
    labels: int = 0,
) -> Transformer:
    """An encoder with a head for masked tokens or, with `labels`, a classifier of sequences.

    `windows` as a number is how far tokens see to each side, in all layers but the first of each `period`; else there is
    one for each layer. Layers with a window have `local_position`. The first layer's attention has no norm: the embeddings
    have one. `dropout` is of the hidden activations of feed-forward layers.
    """
    norm = LayerNorm(eps=eps, bias=norm_bias)
    if windows is None or isinstance(windows, int):
        windows = tuple(windows if i % period else None for i in range(n_layers))

    def block(i: int, size: int | None) -> Block:
        return Block(
            position=None if size is None else local_position or Rotary(),
            attention=Attention(
                n_heads=n_heads,
                bias=attention_bias,
                pattern=full() if size is None else window(size + 1),  # which counts the token itself
                dropout=attention_dropout,
            ),
            feedforward=FeedForward(
                d_ff=d_ff, activation=activation, gated=True, bias=feedforward_bias, dropout=dropout
            ),
            norm=norm,
            attention_norm=None if i else NoNorm(),
        )

    masked = LanguageModel(
        tied=tied, bias=output_bias, transform=Transform(activation=head_activation, norm=norm, bias=head_bias)
    )
    sizes = {
        "head_activation": head_activation,
        "head_bias": head_bias,
        "eps": eps,
        "norm_bias": norm_bias,
        "pool": pool,
    }
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=Embedding(norm=norm, dropout=embedding_dropout),
            position=position or GLOBAL,
            blocks=tuple(block(i, size) for i, size in enumerate(windows)),
            norm=norm,
        ),
        head=_sequences(sizes).replace(labels=labels) if labels else masked if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "modernbert-base": {"pool": "mean"},
    "modernbert-large": {"d_model": 1024, "n_layers": 28, "n_heads": 16, "d_ff": 2624, "pool": "mean"},
}


def _norm(sizes: Mapping[str, Any]) -> LayerNorm:
    return LayerNorm(eps=sizes.get("eps", 1e-5), bias=sizes.get("norm_bias", False))


def _sequences(sizes: Mapping[str, Any]) -> Head:
    return SequenceClassifier(
        pool=sizes.get("pool", "first"),
        activation=sizes.get("head_activation", "gelu"),
        dense_bias=sizes.get("head_bias", False),
        norm=_norm(sizes),
    )


def _tokens(sizes: Mapping[str, Any]) -> Head:
    own = {"activation": sizes.get("head_activation", "gelu"), "bias": sizes.get("head_bias", False)}
    return TokenClassifier(transform=Transform(norm=_norm(sizes), **own))


class ScaledLocalRopes(LocalRopes):
    """`rope_scaling` belongs to all layers."""

    scaled = True


class ModernBertWindows(LayerTypes):
    """The field `windows`: `local_attention` counts both sides. Without `layer_types`, all layers but the first of each
    `global_attn_every_n_layers` have one."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"local_attention": 128, "layer_types": None, "global_attn_every_n_layers": 3}

    def types(self, config: Config) -> list[str]:
        period = config["global_attn_every_n_layers"]
        return [SLIDING if i % period else FULL for i in range(config["num_hidden_layers"])]

    def read(self, config: Config) -> tuple[int | None, ...]:
        return super().read({**config, "sliding_window": config["local_attention"] // 2})

    def write(self, value: Sequence[int | None], sizes: Mapping[str, Any]) -> dict[str, Any]:
        settings = super().write(value, sizes)
        size = next((size for size in value if size is not None), 64)
        return {"local_attention": 2 * size, "layer_types": settings["layer_types"]}


def _windows(spec: Transformer) -> tuple[int | None, ...]:
    """The window of each layer. Raises AttributeError for another pattern."""
    sizes: list[int | None] = []
    for block in at(spec, "encoder.blocks"):
        pattern = block.attention.pattern
        if not isinstance(pattern, Full | Window) or pattern not in (Full(), window(getattr(pattern, "size", 1))):
            raise AttributeError(f"{pattern} is neither full nor a window to both sides")
        sizes.append(None if isinstance(pattern, Full) else pattern.size - 1)
    return tuple(sizes)


def _local(spec: Transformer) -> Any:
    blocks = at(spec, "encoder.blocks")
    return next((block.position for block in blocks if block.position is not None), UNSAID)


def _of_head(name: str, other: str) -> Any:
    """The place of a size in a classifier of sequences, or else in the transform of another head."""

    def place(spec: Transformer) -> Any:
        if isinstance(spec.head, SequenceClassifier):
            return getattr(spec.head, name)
        return getattr(getattr(spec.head, "transform", None), other, UNSAID)

    return place


BLOCK, LAYER = "encoder.blocks.{i}", "model.layers.{i}"
NAMES = (
    Row("model.embeddings.tok_embeddings.weight", "encoder.embedding.weight"),
    Row("model.embeddings.norm.*", "encoder.embedding.norm.*"),
    Row(f"{LAYER}.attn_norm.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.attn.Wqkv.weight", f"{BLOCK}.attention.[q,k,v].weight", Joined()),
    Row(f"{LAYER}.attn.Wqkv.bias", f"{BLOCK}.attention.[q,k,v].bias", Joined()),
    Row(f"{LAYER}.attn.Wo.*", f"{BLOCK}.attention.out.*"),
    Row(f"{LAYER}.mlp_norm.*", f"{BLOCK}.norm.feedforward.*"),
    Row(f"{LAYER}.mlp.Wi.weight", f"{BLOCK}.feedforward.[gate,up].weight", Joined()),
    Row(f"{LAYER}.mlp.Wi.bias", f"{BLOCK}.feedforward.[gate,up].bias", Joined()),
    Row(f"{LAYER}.mlp.Wo.*", f"{BLOCK}.feedforward.down.*"),
    Row("model.final_norm.*", "encoder.norm.*"),
    Row("decoder.weight", "head.weight"),
    Row("decoder.bias", "head.bias"),
    Row("classifier.*", "head.out.*"),
)


def _names(spec: Transformer) -> tuple[Row, ...]:
    ours = "head" if isinstance(spec.head, SequenceClassifier) else "head.transform"
    return (*NAMES, Row("head.dense.*", f"{ours}.dense.*"), Row("head.norm.*", f"{ours}.norm.*"))


FAMILY = Family(
    model_type="modernbert",
    make=modernbert,
    classes={
        "ModernBertForMaskedLM": Class(),
        "ModernBertModel": BARE,
        "ModernBertForSequenceClassification": Class(
            {"head": False}, head=_sequences, dropout={"classifier_dropout": 0.0}
        ),
        "ModernBertForTokenClassification": Class({"head": False}, head=_tokens, dropout={"classifier_dropout": 0.0}),
    },
    prefix="model.",
    fields=(
        Key("vocab_size", "vocab_size", 50368),
        Key("hidden_size", "d_model", 768),
        Key("num_hidden_layers", "n_layers", 22),
        Key("num_attention_heads", "n_heads", 12),
        Key("intermediate_size", "d_ff", 1152),
        Key("hidden_activation", "activation", "gelu", ACTIVATIONS),
        Key("attention_bias", "attention_bias", False),
        Key("mlp_bias", "feedforward_bias", False),
        Key("embedding_dropout", "embedding_dropout", 0.0),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("mlp_dropout", "dropout", 0.0),
        Key("norm_eps", "eps", 1e-5),
        Key("norm_bias", "norm_bias", False),
        Key("max_position_embeddings", "max_positions", 8192),
        Key("tie_word_embeddings", "tied", True),
        Key("classifier_activation", "head_activation", "gelu", ACTIVATIONS),
        Key("classifier_bias", "head_bias", False),
        Key("decoder_bias", "output_bias", True),
        Key("classifier_pooling", "pool", "cls", {"cls": "first", "mean": "mean"}),
        ModernBertWindows(),
        Ropes(base=160000.0, theta_key="global_rope_theta"),
        ScaledLocalRopes(theta_key="local_rope_theta", size="local_position"),
    ),
    places={
        **places("encoder"),
        "dropout": "encoder.blocks.0.feedforward.dropout",
        "norm_bias": "encoder.norm.bias",
        "windows": _windows,
        "local_position": _local,
        "head_activation": _of_head("activation", "activation"),
        "head_bias": _of_head("dense_bias", "bias"),
        "output_bias": lambda spec: spec.head.bias if isinstance(spec.head, LanguageModel) else UNSAID,
        "pool": lambda spec: spec.head.pool if isinstance(spec.head, SequenceClassifier) else UNSAID,
    },
    names=_names,
    harmless={
        **dict.fromkeys(("cls_token_id", "initializer_cutoff_factor", "deterministic_flash_attn"), ANY),
        **dict.fromkeys(("reference_compile", "repad_logits_with_grad", "position_embedding_type"), ANY),
        **dict.fromkeys(
            ("sparse_prediction", "sparse_pred_ignore_index", "sliding_window"), ANY
        ),  # how a loss is computed
        "layer_norm_eps": ANY,  # repeated beside norm_eps, which counts
    },
)
