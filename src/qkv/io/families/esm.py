"""ESM-2 and ESM-1b (Lin et al. 2023; Rives et al. 2021): pre-norm encoders of proteins, whose masked tokens are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.mask_scaled import MaskScaledEmbedding
from ...nn.layers.norm import LayerNorm, NoNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Learned
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import Family, at
from ..hub.keys import ANY, Config, Key
from ..hub.names import Row
from .bert import legacy
from .classes import encoders, reading
from .places import heads, places
from .roberta import HEADS, LONGEST, PADDING


def esm(
    *,
    vocab_size: int = 33,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    mask_id: int | None = 32,
    normed: bool = False,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 1026,
    head: bool = True,
    pooler: bool = False,
) -> Transformer:
    """A pre-norm encoder with rotary positions, a head for masked tokens, and a pooler.

    `mask_id` is the masked token, whose vectors are 0; None treats it as others. `normed` has a norm after embeddings.
    """
    norm = LayerNorm(eps=eps)
    about = {"norm": norm if normed else NoNorm()}
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout),
        feedforward=FeedForward(d_ff=d_ff, activation="gelu"),
        norm=norm,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=Embedding(**about) if mask_id is None else MaskScaledEmbedding(mask_id=mask_id, **about),
            position=position or Rotary(),
            blocks=(block,) * n_layers,
            norm=norm,
        ),
        head=LanguageModel(tied=tied, bias=True, transform=Transform(activation="gelu", norm=norm)) if head else None,
        classification_head=SequenceClassifier(labels=None) if pooler else None,
        initialization=Normal(scale_residual=False),
    )


def _size(d_model: int, n_layers: int, n_heads: int) -> dict[str, Any]:
    return {"d_model": d_model, "n_layers": n_layers, "n_heads": n_heads, "d_ff": 4 * d_model}


SIZES: dict[str, dict[str, Any]] = {
    "esm2-8m": _size(320, 6, 20),
    "esm2-35m": _size(480, 12, 20),
    "esm2-150m": _size(640, 30, 20),
    "esm2-650m": _size(1280, 33, 20),
    "esm2-3b": _size(2560, 36, 40),
    "esm2-15b": _size(5120, 48, 40),
}


@dataclass(frozen=True)
class MaskedToken:
    """The field `mask_id`: with `token_dropout`, the masked token."""

    size: str = "mask_id"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"token_dropout": False, "mask_token_id": None}

    def read(self, config: Config) -> int | None:
        if not config["token_dropout"]:
            return None
        mask, size = config["mask_token_id"], config["vocab_size"]
        if not isinstance(mask, int) or not 0 <= mask < size:
            raise ValueError(f"token_dropout needs mask_token_id, a token from 0 to {size - 1}, not {brief(mask)}")
        return mask

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"token_dropout": False} if value is None else {"token_dropout": True, "mask_token_id": value}


@dataclass(frozen=True)
class EsmPosition:
    """The field `position`: rotary, or learned as RoBERTa's."""

    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"position_embedding_type": "absolute", "rope_theta": 10000.0, PADDING: 1}

    def read(self, config: Config) -> Position:
        kind = config["position_embedding_type"]
        if kind not in ("absolute", "rotary"):
            raise ValueError(
                f"position_embedding_type {brief(kind)} is not built here; what is, is 'rotary' and 'absolute'"
            )
        return Rotary(base=config["rope_theta"]) if kind == "rotary" else Learned(offset=config[PADDING] + 1)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(value, Learned) and value.offset:
            return {"position_embedding_type": "absolute", PADDING: value.offset - 1}
        if type(value) is not Rotary or value != Rotary(base=value.base):
            raise ValueError(
                f"its positions are rotary, or learned and begin at 1 or above, and this model's are {value}"
            )
        return {"position_embedding_type": "rotary", "rope_theta": value.base, PADDING: 1}


@dataclass(frozen=True)
class EsmLength:
    """The field `max_positions`: of learned positions, the rows from the first position on."""

    size: str = "max_positions"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {LONGEST: 1026}

    def read(self, config: Config) -> int:
        before = 0 if config["position_embedding_type"] == "rotary" else config[PADDING] + 1
        if config[LONGEST] <= before:
            raise ValueError(f"{LONGEST} is {config[LONGEST]}, and {before} rows precede the first position; raise it")
        return int(config[LONGEST]) - before

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {LONGEST: value + getattr(sizes["position"], "offset", 0)}


LAYER, BLOCK = "esm.encoder.layer.{i}", "encoder.blocks.{i}"
RATES = "attention.self.rotary_embeddings.inv_freq"


def _mask_id(spec: Transformer) -> int | None:
    embedding = at(spec, "encoder.embedding")
    return embedding.mask_id if isinstance(embedding, MaskScaledEmbedding) else None


def _rates(spec: Transformer) -> dict[str, Tensor]:
    """The rates of rotary positions, which published files hold for each layer."""
    assert spec.encoder is not None
    position, width = spec.encoder.position, heads(spec.encoder, spec.d_model)[2]
    if not isinstance(position, Rotary):
        return {}
    rates = 1.0 / (position.base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    return {f"{LAYER.format(i=i)}.{RATES}": rates.clone() for i in range(spec.encoder.n_layers)}


def _contacts(spec: Transformer) -> dict[str, tuple[int, ...]]:
    """The regression of contacts of residues from all heads' attention."""
    assert spec.encoder is not None
    count = spec.encoder.n_layers * heads(spec.encoder, spec.d_model)[0]
    return {"esm.contact_head.regression.weight": (1, count), "esm.contact_head.regression.bias": (1,)}


NAMES = (
    Row("esm.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
    Row("esm.embeddings.position_embeddings.weight", "encoder.position.weight"),
    Row("esm.embeddings.layer_norm.*", "encoder.embedding.norm.*"),
    Row(f"{LAYER}.attention.self.[query,key,value].*", f"{BLOCK}.attention.[q,k,v].*"),
    Row(f"{LAYER}.attention.output.dense.*", f"{BLOCK}.attention.out.*"),
    Row(f"{LAYER}.attention.LayerNorm.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.intermediate.dense.*", f"{BLOCK}.feedforward.up.*"),
    Row(f"{LAYER}.output.dense.*", f"{BLOCK}.feedforward.down.*"),
    Row(f"{LAYER}.LayerNorm.*", f"{BLOCK}.norm.feedforward.*"),
    Row("esm.encoder.emb_layer_norm_after.*", "encoder.norm.*"),
    Row("esm.pooler.dense.*", "classification_head.dense.*"),
    Row("esm.embeddings.position_ids", ""),
    Row("esm.rotary_embeddings.inv_freq", ""),  # rates, computed
    Row(f"esm.encoder.layer.*.{RATES}", ""),  # in files of transformers 5, the * itself stands there
    Row("esm.contact_head.regression.*", ""),  # carried
    *(row for row in HEADS if row.theirs != "lm_head.decoder.bias"),
)

FAMILY = Family(
    model_type="esm",
    make=esm,
    classes={
        name: cls for name, cls in encoders("Esm", {"hidden_dropout_prob": 0.1}).items() if "Question" not in name
    },
    prefix="esm.",
    fields=(
        Key("vocab_size", "vocab_size", 33),
        Key("hidden_size", "d_model", 768),
        Key("num_hidden_layers", "n_layers", 12),
        Key("num_attention_heads", "n_heads", 12),
        Key("intermediate_size", "d_ff", 3072),
        Key("hidden_dropout_prob", "dropout", 0.1),
        Key("attention_probs_dropout_prob", "attention_dropout", 0.1),
        Key("layer_norm_eps", "eps", 1e-12),
        Key("emb_layer_norm_before", "normed", None, {False: False, None: False, True: True}),
        Key("tie_word_embeddings", "tied", True),
        MaskedToken(),
        EsmPosition(),
        EsmLength(),
    ),
    places={
        **places("encoder"),
        "mask_id": _mask_id,
        "normed": lambda spec: not isinstance(at(spec, "encoder.embedding.norm"), NoNorm),
    },
    harmless={
        "is_folding_model": False,
        "esmfold_config": None,
        "vocab_list": ANY,  # of ESMFold
        "hidden_act": "gelu",
    },
    computed=_rates,
    carried=_contacts,
    names=reading((*NAMES, *legacy(NAMES))),
)
