"""OPT (Zhang et al. 2022): GPT-3 with ReLU; one size has norms after its sublayers, and a narrow table of tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.embedding import Embedding
from ...nn.layers.norm import NoNorm
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.text import Span
from ...nn.models.initialization import Normal
from ...nn.models.placement import PreNorm
from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Learned
from ..hub.family import Table, at
from ..hub.keys import ACTIVATIONS, ANY, Key
from ..hub.names import Row
from .classes import ANSWERS, SCORE, classifier, decoders
from .factories import alike, based_on
from .gpt2 import FAMILY as GPT2
from .gpt2 import gpt
from .places import places


@based_on(
    gpt,
    without=("n_kv_heads", "embedding_dropout", "bias", "eps"),
    vocab_size=50272,
    activation="relu",
    max_positions=2048,
)
def opt(
    *,
    embedding_width: int | None = None,
    bias: bool = True,
    attention_dropout: float = 0.0,
    pre_norm: bool = True,
    final_norm: bool = True,
    **sizes: Any,
) -> Transformer:
    """GPT-2 with two rows before the first position.

    `embedding_width` is the width of the table of tokens, d_model by default: another one is projected before positions
    are added, and states are projected to it before they meet the vocabulary. `bias` is that of matrices. A norm at the end
    goes with `pre_norm` alone.
    """
    own = {"attention_dropout": attention_dropout, "embedding_dropout": 0.0}
    spec = gpt(**{**sizes, **own, "position": sizes["position"] or Learned(offset=2)})
    changes = {"attention.bias": bias, "feedforward.bias": bias, "placement": "pre" if pre_norm else "post"}
    decoder = alike(spec.output, changes)
    if not (pre_norm and final_norm):
        decoder = decoder.replace(norm=NoNorm())
    width, head = None if embedding_width == spec.d_model else embedding_width, spec.head
    if width is not None:
        decoder = decoder.replace(embedding=Embedding(width=width, projects="first", projection_bias=False))
        narrow = Transform(activation="identity", norm=NoNorm(), width=width, bias=False)
        head = head and head.replace(transform=narrow)
    return spec.replace(decoder=decoder, head=head, initialization=Normal(scale_residual=False))


SIZES: dict[str, dict[str, Any]] = {
    "opt-125m": {},
    "opt-350m": {"d_model": 1024, "n_layers": 24, "n_heads": 16, "embedding_width": 512, "pre_norm": False},
    "opt-1.3b": {"d_model": 2048, "n_layers": 24, "n_heads": 32},
    "opt-2.7b": {"d_model": 2560, "n_layers": 32, "n_heads": 32},
    "opt-6.7b": {"d_model": 4096, "n_layers": 32, "n_heads": 32},
    "opt-13b": {"d_model": 5120, "n_layers": 40, "n_heads": 40},
    "opt-30b": {"d_model": 7168, "n_layers": 48, "n_heads": 56},
    "opt-66b": {"d_model": 9216, "n_layers": 64, "n_heads": 72},
}

LAYER, BLOCK = "model.decoder.layers.{i}", "decoder.blocks.{i}"


def names(spec: Transformer) -> Table:
    """The rows. Raises ValueError for a narrow table of tokens without the language model's head."""
    if at(spec, "decoder.embedding.width") and not isinstance(spec.head, LanguageModel):
        raise ValueError(
            "word_embed_proj_dim differs from hidden_size, so classes other than OPTForCausalLM read projected states, "
            'which is not built here; load the directory with "architectures": ["OPTForCausalLM"]'
        )
    return (
        Row("model.decoder.embed_tokens.weight", "decoder.embedding.weight"),
        Row("model.decoder.embed_positions.weight", "decoder.position.weight"),
        Row("model.decoder.project_in.weight", "decoder.embedding.project.weight"),
        Row("model.decoder.project_out.weight", "head.transform.dense.weight"),
        Row(f"{LAYER}.self_attn.[q,k,v,out]_proj.*", f"{BLOCK}.attention.[q,k,v,out].*"),
        Row(f"{LAYER}.self_attn_layer_norm.*", f"{BLOCK}.norm.attention.*"),
        Row(f"{LAYER}.fc1.*", f"{BLOCK}.feedforward.up.*"),
        Row(f"{LAYER}.fc2.*", f"{BLOCK}.feedforward.down.*"),
        Row(f"{LAYER}.final_layer_norm.*", f"{BLOCK}.norm.feedforward.*"),
        Row("model.decoder.final_layer_norm.*", "decoder.norm.*"),
        Row("lm_head.weight", "head.weight"),
        ANSWERS if isinstance(spec.head, Span) else SCORE,
    )


FAMILY = replace(
    GPT2,
    model_type="opt",
    make=opt,
    classes={
        **{name: cls for name, cls in decoders("OPT").items() if "Token" not in name},
        "OPTForQuestionAnswering": classifier(Span()),
    },
    prefix="model.",
    fields=(
        Key("vocab_size", "vocab_size", 50272),
        Key("hidden_size", "d_model", 768),
        Key("num_hidden_layers", "n_layers", 12),
        Key("num_attention_heads", "n_heads", 12),
        Key("ffn_dim", "d_ff", 3072),
        Key("word_embed_proj_dim", "embedding_width", None),
        Key("activation_function", "activation", "relu", ACTIVATIONS),
        Key("enable_bias", "bias", True),
        Key("do_layer_norm_before", "pre_norm", True),
        Key("_remove_final_layer_norm", "final_norm", False, {False: True, True: False}),
        Key("dropout", "dropout", 0.1),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("max_position_embeddings", "max_positions", 2048),
        Key("tie_word_embeddings", "tied", True),
    ),
    places={
        **places("decoder"),
        "bias": "decoder.blocks.0.attention.bias",
        "embedding_width": lambda spec: at(spec, "decoder.embedding.width") or spec.d_model,
        "pre_norm": lambda spec: isinstance(at(spec, "decoder.blocks.0.placement"), PreNorm),
        "final_norm": lambda spec: not isinstance(at(spec, "decoder.norm"), NoNorm),
    },
    harmless={
        "layer_norm_elementwise_affine": True,
        "activation_dropout": ANY,  # which transformers does not apply
        "layerdrop": ANY,  # layers dropped in training
        "init_std": ANY,
        "prefix": ANY,
    },
    names=names,
)
