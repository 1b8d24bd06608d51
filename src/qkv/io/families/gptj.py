"""GPT-J (Wang & Komatsuzaki 2021): attention beside the feed-forward layer after one norm, and interleaved rotary pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.attention.multi_head import head_width
from ...nn.models.heads.text import Span
from ...nn.models.transformer import Transformer
from ...nn.positions.rotary import Rotary
from ..hub.keys import ANY, Config, changed
from ..hub.names import Row
from .classes import SCORE, answering, classifier, decoders
from .factories import alike, based_on
from .gpt2 import FAMILY as GPT2
from .gpt2 import FIELDS, SUMMARY, gpt
from .places import places


@based_on(
    gpt,
    without=("n_kv_heads", "bias"),
    vocab_size=50400,
    d_model=4096,
    n_layers=28,
    n_heads=16,
    dropout=0.0,
    tied=False,
    max_positions=2048,
)
def gptj(*, attention_dropout: float = 0.0, embedding_dropout: float = 0.0, **sizes: Any) -> Transformer:
    """GPT-2 with rotary positions, without biases of attention, with one norm a layer and a bias of the output."""
    d_head = head_width(sizes["d_model"], sizes["n_heads"])
    position = sizes["position"] or interleaved(min(64, d_head // 2 * 2), d_head)
    own = {"attention_dropout": attention_dropout, "embedding_dropout": embedding_dropout, "position": position}
    spec = gpt(**{**sizes, **own})
    decoder = alike(spec.output, {"attention.bias": False, "placement": "parallel", "shared_norm": True})
    changes: dict[str, Any] = {"head.bias": True} if sizes["head"] else {}
    return spec.replace({"decoder": decoder, **changes})


def interleaved(width: int, d_head: int) -> Rotary:
    """Rotary positions of neighboring pairs in the first `width` coordinates of each head."""
    fraction = width / d_head
    return Rotary(
        pairs="interleaved", fraction=fraction if int(d_head * fraction) == width else math.nextafter(fraction, 1)
    )


SIZES: dict[str, dict[str, Any]] = {"gpt-j-6b": {}}


@dataclass(frozen=True)
class RotatedWidth:
    """The field `position`: `rotary_dim` counts the coordinates of each head that rotate."""

    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"rotary_dim": 64}

    def read(self, config: Config) -> Rotary:
        d_head = head_width(config["n_embd"], config["n_head"])
        if config["rotary_dim"] > d_head:
            raise ValueError(
                f"rotary_dim {config['rotary_dim']} is above {d_head}, the width of a head (n_embd / n_head)"
            )
        return interleaved(config["rotary_dim"], d_head)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        d_head = head_width(sizes["d_model"], sizes["n_heads"])
        if not isinstance(value, Rotary) or value != interleaved(value.width(d_head), d_head):
            raise ValueError(
                f"its positions are rotary, of neighboring pairs with base 10000, and this model's are {value}"
            )
        return {"rotary_dim": value.width(d_head)}


LAYER, BLOCK = "transformer.h.{i}", "decoder.blocks.{i}"


NAMES = (
    Row("transformer.wte.weight", "decoder.embedding.weight"),
    Row(f"{LAYER}.ln_1.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.attn.[q,k,v]_proj.weight", f"{BLOCK}.attention.[q,k,v].weight"),
    Row(f"{LAYER}.attn.out_proj.weight", f"{BLOCK}.attention.out.weight"),
    Row(f"{LAYER}.mlp.fc_in.*", f"{BLOCK}.feedforward.up.*"),
    Row(f"{LAYER}.mlp.fc_out.*", f"{BLOCK}.feedforward.down.*"),
    Row("transformer.ln_f.*", "decoder.norm.*"),
    Row("lm_head.weight", "head.weight"),
    Row("lm_head.bias", "head.bias"),
    SCORE,
    Row(f"{LAYER}.attn.bias", ""),  # the causal mask, in old files
    Row(f"{LAYER}.attn.masked_bias", ""),
)

FAMILY = replace(
    GPT2,
    model_type="gptj",
    make=gptj,
    classes={
        **{name: cls for name, cls in decoders("GPTJ").items() if "Token" not in name},
        "GPTJForQuestionAnswering": classifier(Span()),
    },
    fields=changed(
        FIELDS,
        RotatedWidth(),
        vocab_size=50400,
        n_positions=2048,
        n_embd=4096,
        n_layer=28,
        n_head=16,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
    ),
    places=places("decoder"),
    harmless={"n_ctx": ANY, "rotary": True, "scale_attn_weights": True, **SUMMARY},
    names=answering(NAMES),
)
