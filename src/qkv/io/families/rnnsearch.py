"""Recurrent translators by name: what came before the Transformer, in the sizes that were published.

`rnnencdec` and `rnnsearch` are compared by Bahdanau et al. (2015, §4.2), `seq2seq` is from Sutskever et al. (2014,
§3.4), and `luong-*` from Luong et al. (2015, §4.1). `gnmt` is from Wu et al. (2016, §3), and `deep-att` from Zhou et al.
(2016, §4), without peepholes. Vocabularies are the papers' too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...core.spec import brief
from ...nn.attention.scores import Additive
from ...nn.layers.rnn import Cell
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Initialization
from ...nn.models.recurrent.decoder import Context
from ...nn.models.recurrent.deep import Connections
from ...nn.models.recurrent.model import Recurrent


def rnnsearch(
    *,
    vocab_size: int = 30000,
    source_vocab_size: int | None = None,
    d_e: int = 620,
    d_h: int = 1000,
    d_s: int = 1000,
    d_a: int | None = None,
    cell: Cell = "gru",
    decoder_cell: Cell | None = None,
    directions: Literal[1, 2] = 2,
    n_layers: int = 1,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    reverse: bool = False,
    context: Context | Mapping[str, Any] | str = "bahdanau",
    connections: Connections | Mapping[str, Any] | str | None = None,
    dropout: float = 0.0,
    tie_embeddings: bool = False,
    tied_head: bool = False,
    initialization: Initialization | Mapping[str, Any] | str = "glorot",
) -> Recurrent:
    """A recurrent encoder–decoder. `d_a` is the width of an additive score, if the context has one."""
    fields = {"kind": context} if isinstance(context, str) else context
    attention = fields if isinstance(fields, Context) else Context.from_dict(fields)
    if d_a is not None:
        if not isinstance(getattr(attention, "score", None), Additive):
            raise ValueError(
                f"d_a is the width of an additive score, and the context {brief(attention)} has none; leave it out"
            )
        attention = attention.replace({"score.d_a": d_a})
    return Recurrent(
        vocab_size=vocab_size,
        source_vocab_size=source_vocab_size,
        d_e=d_e,
        d_h=d_h,
        d_s=d_s,
        cell=cell,
        decoder_cell=decoder_cell,
        directions=directions,
        encoder_layers=encoder_layers or n_layers,
        decoder_layers=decoder_layers or n_layers,
        reverse=reverse,
        context=attention,
        connections=connections,
        dropout=dropout,
        tie_embeddings=tie_embeddings,
        head=LanguageModel(tied=tied_head, bias=True),
        initialization=initialization,
    )


_PAPER = {"context": {"kind": "bahdanau", "score": {"kind": "additive", "d_a": 1000}, "d_o": 500}}
_DEEP = {"cell": "lstm", "directions": 1, "n_layers": 4, "d_e": 1000, "reverse": True}
_LUONG = {**_DEEP, "vocab_size": 50000, "dropout": 0.2}

SIZES: dict[str, dict[str, Any]] = {
    "rnnsearch": _PAPER,
    "rnnencdec": {"directions": 1, "context": {"kind": "fixed-context", "d_o": 500}},
    "seq2seq": {
        **_DEEP,
        "vocab_size": 80000,
        "source_vocab_size": 160000,
        "context": "final-state",
        "initialization": {"kind": "uniform", "bound": 0.08},
    },
    "gnmt": {
        "cell": "lstm",
        "n_layers": 8,
        "d_e": 1024,
        "d_h": 1024,
        "d_s": 1024,
        "vocab_size": 32000,
        "connections": "residual",
        "context": {"kind": "bottom-attention", "score": {"kind": "additive", "d_a": 1024}},
    },
    "deep-att": {
        "cell": "lstm",
        "n_layers": 7,
        "encoder_layers": 9,
        "d_e": 256,
        "d_h": 512,
        "d_s": 512,
        "vocab_size": 80000,
        "source_vocab_size": 160000,
        "connections": {"kind": "fast-forward", "d_memory": 1280},
        "context": {"kind": "bottom-attention", "score": {"kind": "additive", "d_a": 512}, "everywhere": False},
    },
    "luong-global": {**_LUONG, "context": {"kind": "luong", "score": "dot"}},
    "luong-local-m": {**_LUONG, "context": {"kind": "luong", "score": "general", "alignment": "monotonic"}},
    "luong-local-p": {**_LUONG, "context": {"kind": "luong", "score": "general", "alignment": "predictive"}},
}

PRESETS = [(rnnsearch, SIZES)]
