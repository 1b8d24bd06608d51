"""The architectures of llama.cpp that qkv has: metadata and tensor names for each family of the Hub, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core.spec import brief, nearest
from ....nn.models.transformer import Transformer
from ..family import Table
from .encoders import RowsOf
from .family_keys import BigCodeHeads, FalconShape, FourTimes, GemmaRopes, GGUFUnrotated, MPTAttention, QueryWidth
from .keys import (
    TENSORS,
    Config,
    ConstantMetadata,
    Heads,
    Metadata,
    MetadataEntry,
    Narrowed,
    Noted,
    Present,
    Same,
    Says,
    number,
)
from .rope import RopeKeys
from .tensor_names import bert, bloom, falcon, fused, gemma, halves, neighbors, phi3
from .windows import GGUFWindows


@dataclass(frozen=True)
class Architecture:
    """One architecture for one family of the Hub.

    name:     llama.cpp's.
    model_type, hub_class: the Hub's.
    entries:  metadata ↔ configuration.
    rows:     tensor names, by the model's spec.
    untied:   llama.cpp wants an output matrix even if it is the embedding.
    tied:     the configuration key of a shared embedding; None if it is always shared.
    tells:    whether a file of this architecture is of this family, by its metadata; for names that families share.
    """

    name: str
    model_type: str
    hub_class: str
    entries: tuple[MetadataEntry, ...]
    rows: Callable[[Transformer], Table]
    untied: bool = False
    tied: str | None = "tie_word_embeddings"
    tells: Callable[[Config], bool] = field(default=lambda metadata: True)

    def metadata(self, config: Config) -> Metadata:
        """The metadata of a configuration, without the architecture's name before each key.

        Raises ValueError naming what llama.cpp can't say.
        """
        metadata: Metadata = {}
        for entry in self.entries:
            metadata |= entry.write(config)
        return metadata

    def as_written(self, config: Config) -> dict[str, Any]:
        """The configuration that is read from the metadata of another: without windows that are as long as the context, and
        with llama.cpp's form of GELU."""
        config = dict(config)
        for entry in self.entries:
            if isinstance(entry, Says | Narrowed):
                config |= entry.as_written(config)
        return config

    def config(self, metadata: Config, tensors: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
        """The Hub's configuration of a file's metadata; `tensors` are the file's tensors or their
        shapes by name."""
        config: dict[str, Any] = {"architectures": [self.hub_class], "model_type": self.model_type}
        shapes = {name: getattr(one, "shape", one) for name, one in tensors.items()}
        metadata = {**metadata, TENSORS: shapes}
        for entry in self.entries:
            config |= entry.read(metadata)
        config["vocab_size"] = vocab_size
        if self.tied is not None:
            config[self.tied] = "output.weight" not in tensors
        return config

    def unread(self, metadata: Config, tensors: Mapping[str, Any]) -> list[str]:
        """Return the keys of a file's metadata that qkv doesn't read, and that may change what llama.cpp computes."""
        noted = Noted({**metadata, TENSORS: tensors})
        for entry in self.entries:
            entry.read(noted)
        return [
            name
            for name, value in metadata.items()
            if name not in noted.names and not (name in _IDLE and _IDLE[name] in (None, value))
        ]


_IDLE: dict[str, Any] = {
    "context_length": None,
    "vocab_size": None,
    "pooling_type": None,
    "rope.scaling.finetuned": None,
    "rope.scaling.original_context_length": None,
    "rope.scale_linear": None,
    "tensor_data_layout": None,
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "leading_dense_block_count": 0,
    "use_parallel_residual": False,
}
"""Keys that change no output if they have this value; None stands for any value."""


# -- metadata -----------------------------------------------------------------------------------------------------------

RMS = number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
SILU = Says("hidden_act", ("silu", "swish"), "feed-forward layers of this family are gated by SiLU")
SIZES = (
    Same("context_length", "max_position_embeddings"),
    Same("embedding_length", "hidden_size"),
    Same("block_count", "num_hidden_layers"),
    Same("feed_forward_length", "intermediate_size", optional=True),
)
LLAMA: tuple[MetadataEntry, ...] = (*SIZES, RMS, SILU)
UNBIASED = Says("attention_bias", (False,), "attention of this family has no bias of its output")
GPT2: tuple[MetadataEntry, ...] = (
    Same("context_length", "n_positions"),
    Same("embedding_length", "n_embd"),
    Same("block_count", "n_layer"),
    Same("feed_forward_length", "n_inner"),
    number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
)
TANH = "gelu_pytorch_tanh"
GELU = "feed-forward layers of this family use GELU"
FREQUENCIES = ("llama3",)
EXPERT_KEYS: tuple[MetadataEntry, ...] = (
    Same("expert_count", "num_experts"),
    Same("expert_used_count", "num_experts_per_tok"),
    Same("expert_feed_forward_length", "moe_intermediate_size"),
)


def _llama(name: str, model_type: str, hub_class: str, *own: MetadataEntry, **more: Any) -> Architecture:
    """One of Llama's kind. `divided`: the heads divide the width; `tensors`: see `RopeKeys`."""
    head_dim = None if more.pop("divided", False) else "head_dim"
    heads = Heads(head_dim=head_dim), RopeKeys(tensors=more.pop("tensors", ()), head_dim=head_dim)
    rows = more.pop("rows", neighbors)
    return Architecture(name, model_type, hub_class, (*LLAMA, *heads, *own), rows, **more)


VOCABULARY = Same("vocab_size", "vocab_size", 0)
BIASES = Present("attention_bias", "blk.0.attn_q.bias"), Present("mlp_bias", "blk.0.ffn_gate.bias")
MIXTRAL = (
    Same("expert_count", "num_local_experts"),
    Same("expert_used_count", "num_experts_per_tok"),
    VOCABULARY,
    Narrowed(),
)
GEMMA_ACT = Says("hidden_activation", (TANH, "gelu_new"), "feed-forward layers of Gemma use GELU by its tanh form")
ENCODER: tuple[MetadataEntry, ...] = (
    *SIZES,
    Heads(kv_heads=None, head_dim=None),
    number("attention.layer_norm_epsilon", "layer_norm_eps"),
    RowsOf("type_vocab_size", "token_types.weight"),
    ConstantMetadata({"attention.causal": False}),
)
ALL_SPARSE = Says("mlp_only_layers", ([], None), "layers of this family all have experts")
SPARSE_STEP = Says("decoder_sparse_step", (1,), "layers of this family all have experts")

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(
        "gpt2",
        "gpt2",
        "GPT2LMHeadModel",
        (*GPT2, Heads("n_head", None, "n_embd", None), Says("activation_function", ("gelu_new", TANH), GELU)),
        fused,
    ),
    Architecture(
        "starcoder",
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        (*GPT2, BigCodeHeads(), Says("activation_function", (TANH, "gelu_new"), GELU)),
        fused,
    ),
    Architecture(
        "gptneox",
        "gpt_neox",
        "GPTNeoXForCausalLM",
        (
            *SIZES,
            Heads(kv_heads=None, head_dim=None),
            number("attention.layer_norm_epsilon", "layer_norm_eps"),
            Same("use_parallel_residual", "use_parallel_residual", True),
            Says("attention_bias", (True,), "gptneox has biases"),
            Says("hidden_act", ("gelu", "gelu_new", TANH), GELU),
            RopeKeys(fraction=True, head_dim=None),
        ),
        fused,
        untied=True,
    ),
    Architecture(
        "bloom",
        "bloom",
        "BloomForCausalLM",
        (
            Same("embedding_length", "hidden_size"),
            Same("block_count", "n_layer"),
            Heads("n_head", None, head_dim=None),
            number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            FourTimes("hidden_size"),
            ConstantMetadata({"context_length": 2048}),  # of training; ALiBi has no bound
        ),
        bloom,
    ),
    Architecture(
        "mpt",
        "mpt",
        "MptForCausalLM",
        (
            Same("context_length", "max_seq_len"),
            Same("embedding_length", "d_model"),
            Same("block_count", "n_layers"),
            Heads("n_heads", None, "d_model", None),
            number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            FourTimes("d_model"),
            MPTAttention(),
        ),
        fused,
    ),
    Architecture(
        "falcon",
        "falcon",
        "FalconForCausalLM",
        (
            Same("context_length", "max_position_embeddings"),
            Same("embedding_length", "hidden_size"),
            Same("block_count", "num_hidden_layers"),
            Same("feed_forward_length", "ffn_hidden_size"),
            number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            FalconShape(),
            Says("activation", ("gelu", "gelu_new", TANH), GELU),
            RopeKeys(head_dim=None),
        ),
        falcon,
    ),
    _llama(
        "llama",
        "llama",
        "LlamaForCausalLM",
        VOCABULARY,
        *BIASES,
        tensors=FREQUENCIES,
        tells=lambda said: not said.get("expert_count"),
    ),
    _llama(
        "llama",
        "mistral",
        "MistralForCausalLM",
        VOCABULARY,
        Narrowed(),
        tensors=FREQUENCIES,
        tells=lambda said: False,
    ),
    _llama(
        "llama",
        "mixtral",
        "MixtralForCausalLM",
        *MIXTRAL,
        tensors=FREQUENCIES,
        tells=lambda said: bool(said.get("expert_count")),
    ),
    _llama("qwen2", "qwen2", "Qwen2ForCausalLM", Narrowed(), rows=halves, divided=True),
    _llama("qwen3", "qwen3", "Qwen3ForCausalLM", UNBIASED, Narrowed(), rows=halves),
    _llama(
        "qwen2moe",
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        *EXPERT_KEYS,
        Same("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        Says("norm_topk_prob", (False,), "qwen2moe doesn't renormalize the weights of experts"),
        ALL_SPARSE,
        SPARSE_STEP,
        Narrowed(),
        rows=halves,
        divided=True,
        untied=True,
    ),
    _llama(
        "qwen3moe",
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        *EXPERT_KEYS,
        UNBIASED,
        Says("norm_topk_prob", (True,), "qwen3moe renormalizes the weights of experts"),
        ALL_SPARSE,
        SPARSE_STEP,
        Narrowed(),
        rows=halves,
    ),
    _llama("olmo2", "olmo2", "Olmo2ForCausalLM", UNBIASED, rows=halves, divided=True, untied=True),
    _llama("smollm3", "smollm3", "SmolLM3ForCausalLM", UNBIASED, GGUFUnrotated(), VOCABULARY, Narrowed()),
    _llama(
        "granite",
        "granite",
        "GraniteForCausalLM",
        number("embedding_scale", "embedding_multiplier", 1.0),
        number("attention.scale", "attention_multiplier", 1.0),
        number("residual_scale", "residual_multiplier", 1.0),
        number("logit_scale", "logits_scaling", 1.0),
        VOCABULARY,
        *BIASES,
        divided=True,
        tensors=FREQUENCIES,
    ),
    Architecture(
        "phi3",
        "phi3",
        "Phi3ForCausalLM",
        (*SIZES, Heads(head_dim=None), RMS, SILU, RopeKeys(True, ("longrope",), head_dim=None), Narrowed()),
        phi3,
    ),
    Architecture(
        "gemma2",
        "gemma2",
        "Gemma2ForCausalLM",
        (
            *SIZES,
            Heads(),
            RMS,
            GEMMA_ACT,
            RopeKeys(),
            UNBIASED,
            GGUFWindows(2),
            QueryWidth(46),
            number("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
            number("final_logit_softcapping", "final_logit_softcapping", 30.0),
            Says("tie_word_embeddings", (True,), "gemma2 shares its embedding with the output"),
        ),
        gemma,
        tied=None,
    ),
    Architecture(
        "gemma3",
        "gemma3_text",
        "Gemma3ForCausalLM",
        (
            *SIZES,
            Heads(),
            RMS,
            GEMMA_ACT,
            GemmaRopes(),
            UNBIASED,
            GGUFWindows(6),
            QueryWidth(62),
            Says("attn_logit_softcapping", (None,), "gemma3 doesn't cap scores"),
            number("final_logit_softcapping", "final_logit_softcapping", optional=True),
        ),
        gemma,
    ),
    Architecture(
        "bert", "bert", "BertModel", (*ENCODER, Says("hidden_act", ("gelu", "gelu_new", TANH), GELU)), bert, tied=None
    ),
    Architecture(
        "nomic-bert",
        "nomic_bert",
        "NomicBertModel",
        (
            *ENCODER,
            Says("hidden_act", ("silu", "swish"), "feed-forward layers of nomic-bert are gated by SiLU"),
            RopeKeys(head_dim=None),
        ),
        bert,
        tied=None,
    ),
)


def of_model_type(model_type: str) -> Architecture:
    """The architecture of a family of the Hub. Raises ValueError if qkv writes none."""
    known = {entry.model_type: entry for entry in ARCHITECTURES}
    if model_type not in known:
        raise ValueError(f"qkv writes no GGUF files of {brief(model_type)}; it writes them of {', '.join(known)}")
    return known[model_type]


def of_file(name: object, metadata: Config) -> Architecture:
    """The architecture of a file. Raises ValueError if it is not one of those here."""
    for entry in ARCHITECTURES:
        if entry.name == name and entry.tells(metadata):
            return entry
    names = dict.fromkeys(entry.name for entry in ARCHITECTURES)
    raise ValueError(
        f"general.architecture is {brief(name)}, which is not built here; {nearest(str(name)[:80], names)}"
    )
