"""Longformer (Beltagy et al. 2020): RoBERTa for long texts, with windows of attention and a few tokens that see all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.attention.longformer import GlobalAttention
from ...nn.models.transformer import Transformer
from ...nn.patterns.algebra import Or
from ...nn.patterns.basic import Pattern, Window, global_tokens, window
from ...nn.positions.absolute import Learned
from ..hub.family import at
from ..hub.keys import Config, changed
from ..hub.names import Row
from .bert import FAMILY as BERT
from .bert import FIELDS, PLACES, body
from .classes import encoders, reading
from .factories import based_on
from .roberta import HEADS, OWN, roberta


@based_on(roberta, vocab_size=50265, eps=1e-5, token_types=1, max_positions=4096)
def longformer(*, windows: int | tuple[int, ...] = 512, **sizes: Any) -> Transformer:
    """RoBERTa whose layers see `windows` tokens, half of them on either side, one size for all layers or one for each.

    Tokens with the role GLOBAL in the layout see all and are seen by all.
    """
    n_layers, n_heads, dropout = sizes["n_layers"], sizes["n_heads"], sizes["attention_dropout"]
    each = (windows,) * n_layers if isinstance(windows, int) else windows
    if len(each) != n_layers or any(size % 2 or size <= 0 for size in each):
        raise ValueError(
            f"windows are even numbers of tokens, one for all or one for each of {n_layers} layers, not {windows}"
        )
    spec = roberta(**{**sizes, "position": sizes["position"] or Learned(offset=2)})
    attention = [GlobalAttention(n_heads=n_heads, dropout=dropout, pattern=sliding(size)) for size in each]
    changes: dict[str, Any] = {f"encoder.blocks.{i}.attention": mixer for i, mixer in enumerate(attention)}
    return spec.replace(changes)


def sliding(size: int) -> Pattern:
    """`size` tokens around each, half of them on either side, and those that are global."""
    return window(size // 2 + 1) | global_tokens()


def window_of(pattern: Pattern) -> int:
    """The size that `sliding` was given. Raises AttributeError for another pattern."""
    for part in pattern.parts if isinstance(pattern, Or) else ():
        if isinstance(part, Window) and pattern == sliding(size := 2 * (part.size - 1)):
            return size
    raise AttributeError(f"{pattern} is not a window with global tokens")


SIZES: dict[str, dict[str, Any]] = {
    "longformer-base-4096": {},
    "longformer-large-4096": {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
}


@dataclass(frozen=True)
class LongformerWindows:
    """The field `windows`: one number for every layer, or a list of one for each."""

    size: str = "windows"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"attention_window": 512}

    def read(self, config: Config) -> int | tuple[int, ...]:
        window = config["attention_window"]
        return window if isinstance(window, int) else tuple(window)

    def write(self, value: tuple[int, ...], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"attention_window": list(value)}


def _windows(spec: Transformer) -> tuple[int, ...]:
    blocks = () if spec.encoder is None else spec.encoder.blocks
    return tuple(window_of(at(block, "attention.pattern")) for block in blocks)


_GLOBAL = Row(
    "longformer.encoder.layer.{i}.attention.self.[query_global,key_global,value_global].*",
    "encoder.blocks.{i}.attention.[q_global,k_global,v_global].*",
)

FAMILY = replace(
    BERT,
    model_type="longformer",
    make=longformer,
    classes=encoders("Longformer", {"hidden_dropout_prob": 0.1}),
    prefix="longformer.",
    fields=changed(FIELDS, *OWN, LongformerWindows()),
    places={**PLACES, "windows": _windows},
    names=reading((*body("longformer"), _GLOBAL, *HEADS)),
    harmless={
        "position_embedding_type": "absolute",
        "attention_mode": "longformer",
        "ignore_attention_mask": False,
        "onnx_export": False,
    },
)
