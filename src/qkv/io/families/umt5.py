"""UMT5 (Chung et al. 2023): mT5 with a table of relative buckets in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ..hub.keys import Config, Key, changed
from ..hub.names import Row
from .factories import based_on
from .t5 import MT5, classes, t5
from .t5 import SIZES as T5_SIZES
from .t5 import names as t5_names


@based_on(t5, vocab_size=256384, n_heads=6, d_ff=1024, n_layers=8, kind=("gelu-tanh", True), tied=False, scale="none")
def umt5(**sizes: Any) -> Transformer:
    """T5 whose layers have their own relative buckets."""
    spec = t5(**sizes)
    return spec.replace({name: _own_tables(stack) for name, stack in spec.stacks()})


def _own_tables(stack: Stack) -> Stack:
    tables = [None, *(stack.position.replace(table=i) for i in range(1, len(stack.blocks)))]
    return stack.replace(
        blocks=tuple(block.replace(position=table) for block, table in zip(stack.blocks, tables, strict=True))
    )


SIZES: dict[str, dict[str, Any]] = {
    f"u{name}": {size: value for size, value in sizes.items() if size != "vocab_size"}
    for name, sizes in T5_SIZES.items()
    if name in ("mt5-small", "mt5-base", "mt5-xl", "mt5-xxl")
}


@dataclass(frozen=True)
class FinalScale:
    """The field `scale`: states are multiplied by 1/√d_model before a head that `tie_word_embeddings` calls tied.

    transformers 5 does so whatever the key says, as it overwrites it; 4 and the published models go by it.
    """

    size: str = "scale"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {}

    def read(self, config: Config) -> str:
        return "none" if config["tie_word_embeddings"] is False else "rsqrt"

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if sizes["tied"] and value == "none":
            raise ValueError("its states are multiplied by 1/√d_model before a tied head, and this model's are not")
        return {"tie_word_embeddings": value != "none"}  # a head that differs from the table counts as its own


def names(spec: Transformer) -> tuple[Row, ...]:
    """mT5's rows, with a row for each layer's table."""
    prefix = "transformer." if any(row.theirs.startswith("transformer.") for row in t5_names(spec)) else ""
    tables = tuple(
        Row(
            f"{prefix}{name}.block.{i}.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{name}.block_positions.{i - 1}.weight" if i else f"{name}.position.weight",
        )
        for name, stack in spec.stacks()
        for i in range(len(stack.blocks))
    )
    return (*(row for row in t5_names(spec) if "relative_attention_bias" not in row.theirs), *tables)


FAMILY = replace(
    MT5,
    model_type="umt5",
    make=umt5,
    classes=classes("UMT5"),
    fields=changed(
        MT5.fields,
        Key("tie_word_embeddings", "tied", True),
        FinalScale(),
        vocab_size=250112,
    ),
    names=names,
)
