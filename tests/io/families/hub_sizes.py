"""Configurations of the Hub's classes, as small as they come."""

from __future__ import annotations

from typing import Any

VOCABULARY, EOS, PAD = 97, 5, 0
LENGTHS = (11, 4, 9)

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
MODERN = {
    **SIZES,
    "pad_token_id": 0,
    "local_attention": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
GEMMA = {**GROUPED, "head_dim": 12, "sliding_window": 6, "query_pre_attn_scalar": 24}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4}
SCALINGS = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 10},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 10,
    },
    "longrope": {
        "short_factor": [1.0, 1.1, 1.3, 2.0],
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "original_max_position_embeddings": 2,  # which every row exceeds: theirs goes by the longest, ours by each
        "factor": 5.0,
    },
}


def rope(kind: str) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, **SCALINGS[kind]}}


EXPERTS = {**GROUPED, "num_local_experts": 4}
NARROW = {**GROUPED, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
SHARED = {**NARROW, "shared_expert_intermediate_size": 24}
HALF_LONG = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1000.0,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.5],
        "long_factor": [1.0, 4.0],
    }
}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
FALCON = {size: value for size, value in SIZES.items() if size != "intermediate_size"}
MPT = {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 40}
QUARTER = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.25}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}
DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": 32,
    "hidden_dim": 48,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 40,
}
ELECTRA = {**SIZES, "embedding_size": 16}
ALBERT = {**ELECTRA, "num_hidden_layers": 3}
BART = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "max_position_embeddings": 40,
    "encoder_layers": 2,
    "encoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_layers": 1,
    "decoder_ffn_dim": 40,
    "decoder_attention_heads": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
LONGFORMER = {**SIZES, "pad_token_id": 1, "attention_window": [4, 8]}
BIG_BIRD = {**SIZES, "max_position_embeddings": 64, "block_size": 4, "num_random_blocks": 1}
MARIAN = {**BART, "scale_embedding": True, "activation_function": "swish"}
PEGASUS = {**BART, "scale_embedding": True, "activation_function": "relu"}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 1,
}
OPT = {**{key: value for key, value in SIZES.items() if key != "intermediate_size"}, "ffn_dim": 48}
GPTJ = {**GPT, "rotary_dim": 4}
ESM = {**SIZES, "pad_token_id": 1, "mask_token_id": 32, "hidden_dropout_prob": 0.0}
TEMPERED = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 4,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3,
    }
}
ESMS_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
M2M100 = {**BART, "scale_embedding": True, "activation_function": "relu", "pad_token_id": PAD}
XLM_R = {**SIZES, "pad_token_id": 1, "type_vocab_size": 1}
