"""Which values a configuration's keys may have: types and ranges, checked before anything is made of them.

Bounds are well beyond every published model, and low enough that no value within them takes long or much memory to refuse.
The other readers of JSON use pydantic models. Here, one table is simpler: a key means the same in every family, each family
reads some of the keys, and an error names both ends of a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.spec import brief


class ValueKind:
    """The values that a key may have."""

    def fits(self, value: object) -> bool:
        raise NotImplementedError

    def check(self, value: object, where: str) -> None:
        """Raises ValueError naming the key, what it is, and what it may be."""
        if not self.fits(value):
            raise ValueError(f"{where} must be {self}, not {brief(value)}")


@dataclass(frozen=True)
class Whole(ValueKind):
    """An integer within bounds; True and 3.0 are not integers here."""

    least: int = 0
    most: int = 1 << 30

    def fits(self, value: object) -> bool:
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}"


@dataclass(frozen=True)
class Real(ValueKind):
    """A finite number within bounds; `above` and `below` exclude the bounds themselves."""

    least: float = 0.0
    most: float = 1e9
    above: bool = False
    below: bool = False

    def fits(self, value: object) -> bool:
        if (
            not (type(value) is int or type(value) is float) or not self.least <= value <= self.most
        ):  # NaN is in no range
            return False
        return not ((self.above and value == self.least) or (self.below and value == self.most))

    def __str__(self) -> str:
        low = "above" if self.above else "from"
        return f"a number {low} {self.least:g} {'and below' if self.below else 'to'} {self.most:g}"


class Flag(ValueKind):
    def fits(self, value: object) -> bool:
        return type(value) is bool

    def __str__(self) -> str:
        return "true or false"


class StringKind(ValueKind):
    """A string; the field that reads it checks which names there are."""

    def fits(self, value: object) -> bool:
        return isinstance(value, str)

    def __str__(self) -> str:
        return "a string"


@dataclass(frozen=True)
class Maybe(ValueKind):
    """A value, or null."""

    kind: ValueKind

    def fits(self, value: object) -> bool:
        return value is None or self.kind.fits(value)

    def check(self, value: object, where: str) -> None:
        if value is not None:
            self.kind.check(value, where)

    def __str__(self) -> str:
        return f"{self.kind} or null"


@dataclass(frozen=True)
class List(ValueKind):
    of: ValueKind
    most: int
    least: int = 0

    def fits(self, value: object) -> bool:
        return (
            isinstance(value, list | tuple) and self.least <= len(value) <= self.most and all(map(self.of.fits, value))
        )

    def __str__(self) -> str:
        count = self.least if self.least == self.most else f"{self.least} to {self.most}"
        return f"a list of {count}, each {self.of}"


@dataclass(frozen=True)
class Either(ValueKind):
    one: ValueKind
    other: ValueKind

    def fits(self, value: object) -> bool:
        return self.one.fits(value) or self.other.fits(value)

    def __str__(self) -> str:
        return f"{self.one}, or {self.other}"


class ObjectKind(ValueKind):
    """A JSON object. `inside` gives the kinds of the values of some keys, which may also be null."""

    def __init__(self, inside: Mapping[str, ValueKind] | None = None, most: int = 1 << 16) -> None:
        self.inside, self.most = inside or {}, most

    def fits(self, value: object) -> bool:
        return isinstance(value, Mapping) and len(value) <= self.most

    def check(self, value: object, where: str) -> None:
        super().check(value, where)
        assert isinstance(value, Mapping)
        for key, kind in self.inside.items():
            if value.get(key) is not None:
                kind.check(value[key], f"{where}.{key}")

    def __str__(self) -> str:
        return f"a JSON object of at most {self.most} entries"


WIDTH, LAYERS, HEADS = Whole(1, 1 << 20), Whole(1, 512), Whole(1, 4096)
VOCABULARY, EXPERTS, LENGTH = Whole(1, 1 << 26), Whole(1, 1024), Whole(1, 1 << 30)
LABELS = 1 << 16
PROBABILITY = Real(0, 1, below=True)  # of dropout
EPSILON = Real(0, 1, above=True)
POSITIVE = Real(0, 1e9, above=True)
BASE = Real(1, 1e15, above=True)
FRACTION = Real(0, 1, above=True)
SIDE = Whole(1, 1 << 14)  # pixels
FACTORS = List(POSITIVE, 4096, 1)

ROPE = ObjectKind(
    {
        **dict.fromkeys(("type", "rope_type"), StringKind()),
        "rope_theta": BASE,
        "partial_rotary_factor": FRACTION,
        "original_max_position_embeddings": LENGTH,
        **dict.fromkeys(("short_factor", "long_factor"), FACTORS),
        **dict.fromkeys(("factor", "attention_factor", "beta_fast", "beta_slow"), POSITIVE),
        **dict.fromkeys(("low_freq_factor", "high_freq_factor"), POSITIVE),
        **dict.fromkeys(("mscale", "mscale_all_dim"), Real(0, 1e9)),
        "truncate": Flag(),
        "llama_4_scaling_beta": Real(0, 1e3),
    }
)
ROPES = ObjectKind({**ROPE.inside, "full_attention": ROPE, "sliding_attention": ROPE})
ATTENTION = ObjectKind({"attn_pdrop": PROBABILITY, "softmax_scale": POSITIVE, "alibi_bias_max": POSITIVE})


def _each(kind: ValueKind, *keys: str) -> dict[str, ValueKind]:
    return dict.fromkeys(keys, kind)


KINDS: dict[str, ValueKind] = {
    **_each(WIDTH, "d_model", "hidden_size", "n_embd", "n_embed", "dim", "embedding_size", "pooler_output_size"),
    **_each(WIDTH, "d_ff", "intermediate_size", "n_inner", "hidden_dim", "ffn_hidden_size", "decoder_hidden_size"),
    **_each(WIDTH, "encoder_ffn_dim", "decoder_ffn_dim", "decoder_intermediate_size", "moe_intermediate_size"),
    **_each(WIDTH, "shared_expert_intermediate_size", "d_kv", "head_dim", "ffn_dim", "word_embed_proj_dim"),
    **_each(LAYERS, "n_layers", "n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers"),
    **_each(LAYERS, "num_hidden_groups", "encoder_layers", "decoder_layers", "decoder_num_hidden_layers"),
    **_each(HEADS, "n_heads", "n_head", "num_heads", "num_attention_heads", "num_key_value_heads", "num_kv_heads"),
    **_each(HEADS, "encoder_attention_heads", "decoder_attention_heads", "decoder_num_attention_heads"),
    **_each(VOCABULARY, "vocab_size", "decoder_vocab_size"),
    **_each(LENGTH, "max_position_embeddings", "n_positions", "max_seq_len", "original_max_position_embeddings"),
    **_each(LENGTH, "max_trained_positions"),
    **_each(LENGTH, "relative_attention_max_distance", "max_target_positions"),
    **_each(Whole(1, 1 << 20), "max_source_positions"),
    **_each(Whole(1, 4096), "num_mel_bins", "num_conv_pos_embeddings", "num_conv_pos_embedding_groups"),
    **_each(List(Whole(1, 1 << 16), 64, 1), "conv_dim", "conv_kernel", "conv_stride"),
    **_each(PROBABILITY, "feat_proj_dropout", "final_dropout"),
    **_each(StringKind(), "feat_extract_norm", "feat_extract_activation"),
    **_each(Flag(), "conv_bias", "do_stable_layer_norm", "ctc_zero_infinity", "feat_proj_layer_norm"),
    **_each(EXPERTS, "num_experts", "num_local_experts", "num_experts_per_tok"),
    **_each(
        Whole(1, 4096),
        "decoder_sparse_step",
        "sliding_window_pattern",
        "global_attn_every_n_layers",
        "no_rope_layer_interval",
        "relative_attention_num_buckets",
    ),
    **_each(Whole(0, 4096), "max_window_layers", "num_random_blocks", "num_detection_tokens", "type_vocab_size"),
    **_each(Whole(1, 1 << 16), "block_size", "num_channels", "pretraining_tp"),
    **_each(Whole(1, 2), "num_ln_in_parallel_attn"),
    **_each(Whole(0, LABELS), "num_labels"),
    **_each(Whole(0, 1 << 26), "pad_token_id", "mask_token_id"),
    **_each(Whole(2, 1 << 20), "rotary_dim"),
    **_each(Whole(2, 1 << 30), "local_attention"),
    **_each(Maybe(Whole(0, 1 << 30)), "sliding_window"),  # 0 is none
    **_each(PROBABILITY, "dropout", "dropout_rate", "resid_pdrop", "embd_pdrop", "attn_pdrop", "activation_dropout"),
    **_each(PROBABILITY, "hidden_dropout", "hidden_dropout_prob", "attention_dropout", "attention_probs_dropout_prob"),
    **_each(PROBABILITY, "mask_ratio", "router_jitter_noise", "embedding_dropout", "mlp_dropout"),
    **_each(EPSILON, "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps"),
    **_each(Real(0, 1e9), "router_aux_loss_coef"),
    **_each(POSITIVE, "query_pre_attn_scalar", "embedding_multiplier", "attention_multiplier"),
    **_each(POSITIVE, "residual_multiplier", "logits_scaling"),
    **_each(Maybe(POSITIVE), "attn_logit_softcapping", "final_logit_softcapping"),
    **_each(BASE, "rope_theta", "rotary_emb_base", "rope_local_base_freq", "global_rope_theta", "local_rope_theta"),
    **_each(FRACTION, "partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"),
    "rotary_scaling_factor": Real(1, 1e6),
    **_each(Maybe(ROPES), "rope_parameters", "rope_scaling"),
    **_each(Maybe(ATTENTION), "attn_config"),
    **_each(Maybe(ObjectKind(most=512)), "text_config", "vision_config"),
    **_each(Maybe(ObjectKind(most=512)), "text_config_dict", "vision_config_dict"),
    **_each(Maybe(WIDTH), "projection_dim", "projection_size"),
    **_each(Real(-100, 100, below=True), "logit_scale_init_value"),
    **_each(Whole(0, 1 << 26), "image_token_id", "image_token_index", "video_token_id"),
    **_each(Whole(1, 1 << 20), "mm_tokens_per_image", "num_patches"),
    **_each(Whole(1, 64), "scale_factor"),
    **_each(Maybe(ObjectKind(most=LABELS)), "id2label", "label2id"),
    **_each(StringKind(), "activation", "afn", "activation_function", "hidden_act", "hidden_activation"),
    **_each(
        StringKind(),
        "attention_type",
        "dense_act_fn",
        "feed_forward_proj",
        "position_embedding_type",
        "classifier_activation",
        "classifier_pooling",
    ),
    **_each(Either(Whole(2, 1 << 20), List(Whole(2, 1 << 20), 512, 1)), "attention_window"),
    **_each(List(StringKind(), 512), "layer_types"),
    **_each(List(Whole(0, 512), 512), "mlp_only_layers", "no_rope_layers"),
    **_each(Either(SIDE, List(SIDE, 2, 2)), "image_size", "patch_size"),
    **_each(Flag(), "alibi", "attention_bias", "bias", "is_gated_act", "mlp_bias", "multi_query", "norm_pix_loss"),
    **_each(Flag(), "vision_use_head"),
    **_each(Flag(), "new_decoder_architecture", "norm_topk_prob", "parallel_attn", "qkv_bias", "rescale_embeddings"),
    **_each(Flag(), "scale_decoder_outputs", "scale_embedding", "tie_word_embeddings", "use_bias"),
    **_each(Flag(), "enable_bias", "do_layer_norm_before", "_remove_final_layer_norm", "token_dropout"),
    **_each(Maybe(Flag()), "emb_layer_norm_before"),
    **_each(Flag(), "norm_bias", "classifier_bias", "decoder_bias", "slow_but_exact"),
    **_each(Flag(), "use_mid_position_embeddings", "use_parallel_residual", "use_sliding_window"),
}
"""By key of the Hub; a key means the same in every family that claims it."""

ARCHITECTURES = Maybe(List(StringKind(), 64))


def check_values(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Check that every claimed key of a configuration has a value of its kind; `defaults` are the claimed keys.

    A key may be null if that is its default. One that is not in `KINDS` is of its default's kind. Raises ValueError
    naming the key.
    """
    for key, default in defaults.items():
        if key in config and not (config[key] is None and default is None):
            kind = KINDS.get(key) or _like(default)
            if kind is not None:
                kind.check(config[key], key)


def _like(default: Any) -> ValueKind | None:
    if isinstance(default, bool):
        return Flag()
    if isinstance(default, int):
        return Whole()
    if isinstance(default, float):
        return Real(-math.inf, math.inf, above=True, below=True)
    return StringKind() if isinstance(default, str) else None
