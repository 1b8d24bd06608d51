"""GPT-BigCode (SantaCoder, StarCoder; Allal et al. 2023): GPT-2 with multi-query attention and ordinary matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.models.transformer import Transformer
from ..hub.family import Table
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Grouped, Joined, TensorTransform
from .classes import decoders
from .gpt2 import FAMILY as GPT2
from .gpt2 import FIELDS, gpt
from .gpt2 import names as gpt2_names
from .places import heads, places

SIZES: dict[str, dict[str, Any]] = {
    "starcoder": {
        "vocab_size": 49152,
        "d_model": 6144,
        "n_layers": 40,
        "n_heads": 48,
        "n_kv_heads": 1,
        "max_positions": 8192,
    }
}


def names(spec: Transformer) -> Table:
    """GPT-2's rows without transposing; queries, keys and values are fused in one row, or head by head."""
    assert spec.decoder is not None
    n_heads, n_kv_heads, _, _ = heads(spec.decoder, spec.d_model)
    fused: TensorTransform = Joined() if n_kv_heads == 1 else Grouped(n_heads)
    return tuple(
        Row(row.theirs, row.ours, fused) if "c_attn" in row.theirs else Row(row.theirs, row.ours)
        for row in gpt2_names(spec)
    )


def _shared(spec: Transformer) -> int | None:
    """1 if all heads share one key and value, None if each has its own; there is nothing between."""
    if spec.decoder is None:
        raise AttributeError("no decoder")
    n_heads, n_kv_heads, _, _ = heads(spec.decoder, spec.d_model)
    return None if n_kv_heads == n_heads else 1


FAMILY = replace(
    GPT2,
    model_type="gpt_bigcode",
    make=gpt,
    classes=decoders("GPTBigCode"),
    fields=changed(
        FIELDS,
        Key("activation_function", "activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "gelu-tanh"}),
        Key("multi_query", "n_kv_heads", True, {True: 1, False: None}),
    ),
    places={**places("decoder"), "n_kv_heads": _shared},
    harmless={
        "scale_attn_weights": True,
        "num_key_value_heads": ANY,  # said by multi_query
        "attention_softmax_in_fp32": ANY,  # the order and precision of the same computation
        "scale_attention_softmax_in_fp32": ANY,
    },
    names=names,
)
