"""Longformer (Beltagy et al. 2020): RoBERTa for long texts, with windows of attention and a few tokens that see all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..attention.longformer import GlobalAttention
from ..hub.family import Class, Family
from ..hub.keys import Config, changed
from ..hub.names import Row
from ..layers.feedforward import Activation
from ..models.heads.sequence import SequenceClassifier
from ..models.transformer import Transformer
from ..patterns.basic import Pattern, Window, global_tokens, window
from ..positions.absolute import Learned
from ..positions.base import Position
from .bert import FIELDS, NAMES, PLACES, POOLED, bert, legacy
from .classes import dense, readers, reading
from .places import Place
from .roberta import OWN


def longformer(
    *,
    vocab_size: int = 50265,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    eps: float = 1e-5,
    token_types: int = 1,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 4096,
    windows: int | tuple[int, ...] = 512,
    head: bool = True,
    pooler: bool = False,
) -> Transformer:
    """RoBERTa whose layers see `windows` tokens, half of them on either side, one size for all layers or one for each.

    Tokens with the role GLOBAL in the layout see all and are seen by all.
    """
    each = (windows,) * n_layers if isinstance(windows, int) else windows
    if len(each) != n_layers or any(size % 2 or size <= 0 for size in each):
        raise ValueError(
            f"windows are even numbers of tokens, one for all or one for each of {n_layers} layers, not {windows}"
        )
    spec = bert(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        eps=eps,
        token_types=token_types,
        tied=tied,
        position=position or Learned(offset=2),
        max_positions=max_positions,
        head=head,
        pooler=pooler,
    )
    attention = [GlobalAttention(n_heads=n_heads, dropout=attention_dropout, pattern=sliding(size)) for size in each]
    changes: dict[str, Any] = {f"encoder.blocks.{i}.attention": mixer for i, mixer in enumerate(attention)}
    if head:
        changes["head.transform.activation"] = "gelu"  # whatever the layers have
    return spec.replace(changes)


def sliding(size: int) -> Pattern:
    """`size` tokens around each, half of them on either side, and those that are global."""
    return window(size // 2 + 1) | global_tokens()


def window_of(pattern: Pattern) -> int:
    """The size that `sliding` was given. Raises AttributeError for another pattern."""
    for part in getattr(pattern, "parts", ()):
        if isinstance(part, Window) and pattern == sliding(size := 2 * (part.size - 1)):
            return size
    raise AttributeError(f"{pattern} is not a window with global tokens")


SIZES: dict[str, dict[str, Any]] = {
    "longformer-base-4096": {},
    "longformer-large-4096": {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
}


@dataclass(frozen=True)
class Windows:
    """The field `windows`: one number for every layer, or a list of one for each."""

    size: str = "windows"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"attention_window": 512}

    def read(self, config: Config) -> int | tuple[int, ...]:
        given = config["attention_window"]
        return given if isinstance(given, int) else tuple(given)

    def write(self, value: tuple[int, ...], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"attention_window": list(value)}


def _windows(spec: Transformer) -> tuple[int, ...]:
    blocks = () if spec.encoder is None else spec.encoder.blocks
    return tuple(window_of(block.attention.pattern) for block in blocks)  # type: ignore[attr-defined]


_OWN: dict[str, Place] = {"windows": _windows}

_GLOBAL = Row(
    "longformer.encoder.layer.{i}.attention.self.[query_global,key_global,value_global].*",
    "encoder.blocks.{i}.attention.[q_global,k_global,v_global].*",
)

FAMILY = Family(
    model_type="longformer",
    make=longformer,
    classes={
        "LongformerForMaskedLM": Class(),
        "LongformerModel": Class(POOLED, bare=True, optional=("pooler",)),
        "LongformerForSequenceClassification": Class(
            {"head": False}, head=SequenceClassifier(), dropout={"hidden_dropout_prob": 0.1}
        ),
        **readers("Longformer", {"hidden_dropout_prob": 0.1}),
    },
    prefix="longformer.",
    fields=changed(FIELDS, *OWN, Windows()),
    places={**PLACES, **_OWN},
    names=reading(
        (
            *(
                Row(row.theirs.replace("bert.", "longformer.", 1), row.ours, row.how)
                for row in (*NAMES, *legacy(NAMES))
                if row.theirs.startswith("bert.") and row.ours != "head.dense.*"
            ),
            _GLOBAL,
            Row("lm_head.dense.*", "head.transform.dense.*"),
            Row("lm_head.layer_norm.*", "head.transform.norm.*"),
            Row("lm_head.decoder.weight", "head.weight"),
            Row("lm_head.bias", "head.bias"),
            Row("lm_head.decoder.bias", "head.bias"),
            *dense("classifier"),
        )
    ),
    harmless={
        "position_embedding_type": "absolute",
        "attention_mode": "longformer",
        "ignore_attention_mask": False,
        "onnx_export": False,
    },
)
