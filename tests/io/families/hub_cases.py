"""Tiny models of the Hub's own classes, one entry a case: what the parity suite holds every family to.

A new family is an entry in `CASES`; a quirk (a window, tied tables, a rotary scaling) is another entry.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout

transformers = pytest.importorskip(
    "transformers", reason="parity is with Hugging Face's transformers, a test dependency"
)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY, EOS, PAD = 97, 5, 0
LENGTHS = (11, 4, 9)


@dataclass(frozen=True)
class Case:
    """A class of the Hub and what its configuration is made of.

    does:    "continue" (a decoder), "read" (an encoder) or "translate" (both).
    outputs: which output of theirs is the head's; "" for a class without one, whose last hidden states are compared.
    labels:  of tokens, if not the vocabulary.
    types:   whether it reads segments.
    places:  what their `forward` makes of padding: "given" (it takes position_ids), "relative" (nothing depends on where
             a row begins) or "counted" (padding on the left moves positions, so only the right is compared).
    attention: which of their implementations is the model.
    lengths: of the rows, if they have to be longer for a pattern to show.
    chosen:  whether some tokens see all and are seen by all (Longformer).
    renamed: what stands in the names of tensors in their files, and in those of published files, which ours have.
    slow:    whether the fast suite leaves it out.
    """

    cls: str
    config: dict[str, Any]
    does: str = "continue"
    outputs: str = "logits"
    labels: int = VOCABULARY
    types: bool = False
    places: str = "given"
    attention: str = "eager"
    lengths: tuple[int, ...] = LENGTHS
    chosen: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    slow: bool = False


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


CASES: dict[str, Case] = {
    "gpt2": Case("GPT2LMHeadModel", GPT2),
    "gpt2-untied": Case("GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False, "n_inner": 40}),
    "gpt2-bare": Case("GPT2Model", GPT2, outputs=""),
    "openai-gpt": Case("OpenAIGPTLMHeadModel", GPT),
    "openai-gpt-relu": Case("OpenAIGPTLMHeadModel", {**GPT, "afn": "relu"}),
    "openai-gpt-bare": Case("OpenAIGPTModel", GPT, outputs=""),
    "llama": Case("LlamaForCausalLM", GROUPED),
    "llama-mha-tied-biased": Case(
        "LlamaForCausalLM", {**SIZES, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    ),
    "llama-mqa-wide-heads": Case("LlamaForCausalLM", {**SIZES, "num_key_value_heads": 1, "head_dim": 12}),
    "llama-bare": Case("LlamaModel", GROUPED, outputs=""),
    **{f"llama-{kind}": Case("LlamaForCausalLM", {**GROUPED, **rope(kind)}) for kind in SCALINGS},
    "mistral": Case("MistralForCausalLM", {**GROUPED, "sliding_window": 6}),
    "mistral-full": Case("MistralForCausalLM", {**GROUPED, "sliding_window": None}),
    "qwen2": Case("Qwen2ForCausalLM", GROUPED),
    "qwen2-sliding-above": Case(
        "Qwen2ForCausalLM", {**GROUPED, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    ),
    "qwen3": Case("Qwen3ForCausalLM", {**GROUPED, "head_dim": 12}),
    "qwen3-sliding-above": Case(
        "Qwen3ForCausalLM",
        {**GROUPED, "head_dim": 8, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3-tied-biased": Case(
        "Qwen3ForCausalLM", {**GROUPED, "head_dim": 8, "tie_word_embeddings": True, "attention_bias": True}
    ),
    "qwen3-bare": Case("Qwen3Model", {**GROUPED, "head_dim": 8}, outputs=""),
    "gemma": Case("GemmaForCausalLM", {**GROUPED, "head_dim": 12, "hidden_act": "gelu"}),
    "gemma-untied": Case(
        "GemmaForCausalLM", {**GROUPED, "head_dim": 6, "tie_word_embeddings": False, "attention_bias": True}
    ),
    "gemma2": Case("Gemma2ForCausalLM", GEMMA),
    "gemma2-tight-caps": Case(
        "Gemma2ForCausalLM",
        {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5, "query_pre_attn_scalar": 3},
    ),
    "gemma2-no-caps": Case(
        "Gemma2ForCausalLM",
        {
            **GEMMA,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "tie_word_embeddings": False,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    "gemma3": Case("Gemma3ForCausalLM", {**GEMMA, "num_hidden_layers": 3, "sliding_window_pattern": 3}),
    "gemma3-scaled": Case(
        "Gemma3ForCausalLM",
        {
            **GEMMA,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "gemma3-bare": Case("Gemma3TextModel", {**GEMMA, "num_hidden_layers": 6}, outputs=""),
    "olmo2": Case("Olmo2ForCausalLM", {**GROUPED, "rms_norm_eps": 1e-5}),
    "olmo2-bare": Case("Olmo2Model", {**SIZES, "attention_bias": True}, outputs=""),
    "granite": Case(
        "GraniteForCausalLM",
        {
            **GROUPED,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.1,
            "residual_multiplier": 0.22,
            "logits_scaling": 8.0,
        },
    ),
    "granite-bare": Case("GraniteModel", {**GROUPED, "residual_multiplier": 0.5, "mlp_bias": True}, outputs=""),
    "smollm3": Case("SmolLM3ForCausalLM", {**GROUPED, "num_hidden_layers": 4}),
    "smollm3-windows": Case(
        "SmolLM3ForCausalLM",
        {**GROUPED, "no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 5, "mlp_bias": True},
    ),
    "gemma2-bare": Case("Gemma2Model", GEMMA, outputs=""),
    "mixtral": Case("MixtralForCausalLM", EXPERTS),
    "mixtral-one-sliding": Case("MixtralForCausalLM", {**EXPERTS, "num_experts_per_tok": 1, "sliding_window": 6}),
    "mixtral-bare": Case("MixtralModel", EXPERTS, outputs=""),
    "qwen2-moe": Case("Qwen2MoeForCausalLM", SHARED),
    "qwen2-moe-partly-dense": Case(
        "Qwen2MoeForCausalLM",
        {
            **SHARED,
            "num_hidden_layers": 4,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "norm_topk_prob": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 3,
        },
    ),
    "qwen2-moe-bare": Case("Qwen2MoeModel", {**SHARED, "qkv_bias": False}, outputs=""),
    "qwen3-moe": Case("Qwen3MoeForCausalLM", {**NARROW, "head_dim": 12, "norm_topk_prob": True}),
    "qwen3-moe-partly-dense-sliding": Case(
        "Qwen3MoeForCausalLM",
        {**NARROW, "head_dim": 8, "mlp_only_layers": [0], "use_sliding_window": True, "sliding_window": 6},
    ),
    "qwen3-moe-bare": Case("Qwen3MoeModel", {**NARROW, "head_dim": 8}, outputs=""),
    "phi3": Case("Phi3ForCausalLM", GROUPED),
    "phi3-sliding-tied": Case("Phi3ForCausalLM", {**GROUPED, "sliding_window": 6, "tie_word_embeddings": True}),
    "phi3-longrope": Case("Phi3ForCausalLM", {**GROUPED, **rope("longrope"), "original_max_position_embeddings": 2}),
    "phi3-longrope-partial": Case("Phi3ForCausalLM", {**GROUPED, "original_max_position_embeddings": 2, **HALF_LONG}),
    "phi3-bare": Case("Phi3Model", GROUPED, outputs=""),
    "falcon": Case("FalconForCausalLM", FALCON),
    "falcon-new": Case("FalconForCausalLM", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-new-one-norm-biased": Case(
        "FalconForCausalLM",
        {
            **FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "bias": True,
            "ffn_hidden_size": 40,
            "tie_word_embeddings": False,
        },
    ),
    "falcon-alibi": Case(
        "FalconForCausalLM",
        {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
        places="relative",
        attention="sdpa",  # with eager attention it adds ALiBi twice
    ),
    "falcon-alibi-sixteen-heads": Case(
        "FalconForCausalLM",
        {**FALCON, "alibi": True, "num_attention_heads": 16},  # slopes that bfloat16 rounds
        places="relative",
        attention="sdpa",
    ),
    "falcon-bare": Case("FalconModel", FALCON, outputs=""),
    "mpt": Case("MptForCausalLM", MPT, places="relative"),
    "mpt-scaled-odd-heads": Case(
        "MptForCausalLM", {**MPT, "d_model": 30, "n_heads": 6, "attn_config": {"softmax_scale": 0.7}}, places="relative"
    ),
    "mpt-bare": Case("MptModel", MPT, places="relative", outputs=""),
    "bert": Case("BertForMaskedLM", SIZES, does="read", types=True),
    "bert-pretraining": Case("BertForPreTraining", SIZES, does="read", outputs="prediction_logits", types=True),
    "gpt-bigcode": Case("GPTBigCodeForCausalLM", GPT2),
    "gpt-bigcode-mha": Case("GPTBigCodeForCausalLM", {**GPT2, "multi_query": False}),
    "gpt-neox": Case("GPTNeoXForCausalLM", {**SIZES, "rope_parameters": QUARTER}),
    "gpt-neox-sequential": Case(
        "GPTNeoXForCausalLM",
        {**SIZES, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True},
    ),
    "bloom": Case("BloomForCausalLM", BLOOM, places="relative"),
    "bloom-odd-heads": Case("BloomForCausalLM", {**BLOOM, "hidden_size": 30, "n_head": 5}, places="relative"),
    "bert-bare": Case("BertModel", {**SIZES, "hidden_act": "gelu_new"}, does="read", outputs="", types=True),
    "modernbert": Case("ModernBertForMaskedLM", MODERN, does="read"),
    "modernbert-windows": Case(
        "ModernBertForMaskedLM", {**MODERN, "num_hidden_layers": 3}, does="read", lengths=(29, 14, 22)
    ),
    "modernbert-biases": Case(
        "ModernBertForMaskedLM",
        {
            **MODERN,
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True),
            "decoder_bias": False,
            "tie_word_embeddings": False,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        does="read",
        lengths=(29, 14, 22),
    ),
    "modernbert-scaled": Case(
        "ModernBertForMaskedLM",
        {
            **MODERN,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        does="read",
    ),
    "modernbert-bare": Case("ModernBertModel", MODERN, does="read", outputs=""),
    "roberta": Case("RobertaForMaskedLM", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1}, does="read"),
    "roberta-bare": Case("RobertaModel", {**SIZES, "pad_token_id": 1}, does="read", outputs="", types=True),
    "distilbert": Case("DistilBertForMaskedLM", DISTILBERT, does="read"),
    "distilbert-bare": Case("DistilBertModel", DISTILBERT, does="read", outputs=""),
    "albert": Case("AlbertForMaskedLM", ALBERT, does="read", types=True),
    "albert-groups": Case(
        "AlbertForMaskedLM", {**ALBERT, "num_hidden_layers": 5, "num_hidden_groups": 2}, does="read", types=True
    ),
    "albert-bare": Case("AlbertModel", ALBERT, does="read", outputs="", types=True),
    "electra-discriminator": Case("ElectraForPreTraining", ELECTRA, does="read", labels=1, types=True),
    "electra-generator": Case("ElectraForMaskedLM", ELECTRA, does="read", types=True),
    "electra-bare": Case("ElectraModel", {**ELECTRA, "embedding_size": 32}, does="read", outputs="", types=True),
    "longformer": Case("LongformerForMaskedLM", LONGFORMER, does="read", types=True, lengths=(29, 14, 22), chosen=True),
    "longformer-windows-alone": Case(
        "LongformerForMaskedLM",
        {**LONGFORMER, "attention_window": 6, "hidden_act": "relu"},
        does="read",
        types=True,
        lengths=(29, 14, 22),
    ),
    "longformer-bare": Case(
        "LongformerModel", LONGFORMER, does="read", outputs="", types=True, lengths=(29, 14, 22), chosen=True
    ),
    **{  # whose files have two biases of the head, of which the untied head adds the second
        f"{name}-untied": Case(
            f"{cls}ForMaskedLM", {**config, "tie_word_embeddings": False}, does="read", types=types, lengths=lengths
        )
        for name, cls, config, types, lengths in (
            ("bert", "Bert", SIZES, True, LENGTHS),
            ("roberta", "Roberta", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1}, False, LENGTHS),
            ("albert", "Albert", ALBERT, True, LENGTHS),
            ("big-bird", "BigBird", BIG_BIRD, True, (45, 30, 38)),
            ("longformer", "Longformer", LONGFORMER, True, (29, 14, 22)),
        )
    },
    "qwen2-moe-all-dense": Case("Qwen2MoeForCausalLM", {**SHARED, "mlp_only_layers": [0, 1], "hidden_act": "gelu"}),
    "qwen3-moe-all-dense": Case("Qwen3MoeForCausalLM", {**NARROW, "head_dim": 8, "decoder_sparse_step": 3}),
    "big-bird": Case("BigBirdForMaskedLM", BIG_BIRD, does="read", types=True, lengths=(45, 30, 38)),
    "big-bird-pretraining": Case(
        "BigBirdForPreTraining",
        {**BIG_BIRD, "num_random_blocks": 2, "rescale_embeddings": True, "use_bias": False, "hidden_act": "gelu"},
        does="read",
        outputs="prediction_logits",
        types=True,
        lengths=(45, 30, 38),
    ),
    "big-bird-short": Case("BigBirdForMaskedLM", BIG_BIRD, does="read", types=True),
    "big-bird-full": Case(
        "BigBirdForMaskedLM", {**BIG_BIRD, "attention_type": "original_full"}, does="read", types=True
    ),
    "big-bird-bare": Case("BigBirdModel", BIG_BIRD, does="read", outputs="", types=True, lengths=(45, 30, 38)),
    "bart": Case("BartForConditionalGeneration", BART, does="translate", places="counted"),
    "bart-scaled": Case(
        "BartForConditionalGeneration", {**BART, "scale_embedding": True}, does="translate", places="counted"
    ),
    "bart-bare": Case("BartModel", BART, does="translate", places="counted", outputs=""),
    "marian": Case("MarianMTModel", MARIAN, does="translate", places="counted"),
    "pegasus": Case("PegasusForConditionalGeneration", PEGASUS, does="translate", places="counted"),
    "pegasus-bare": Case("PegasusModel", PEGASUS, does="translate", places="counted", outputs=""),
    "xlm-roberta": Case("XLMRobertaForMaskedLM", {**XLM_R, "hidden_act": "relu"}, does="read"),
    "camembert-bare": Case("CamembertModel", XLM_R, does="read", outputs="", slow=True),
    "mpnet": Case("MPNetForMaskedLM", SIZES, does="read"),
    "mpnet-bare": Case("MPNetModel", {**SIZES, "hidden_act": "gelu_new"}, does="read", outputs="", slow=True),
    "nomic-bert": Case("NomicBertForMaskedLM", SIZES, does="read", types=True),
    "nomic-bert-bare": Case(
        "NomicBertModel",
        {**SIZES, "head_dim": 6, "hidden_act": "gelu", **rope("dynamic")},
        does="read",
        outputs="",
        slow=True,
    ),
    "esm": Case(
        "EsmForMaskedLM",
        {**ESM, "position_embedding_type": "rotary", "token_dropout": True},
        does="read",
        renamed=ESMS_NAMES,
    ),
    "esm-bare": Case(
        "EsmModel", {**ESM, "emb_layer_norm_before": True}, does="read", outputs="", renamed=ESMS_NAMES, slow=True
    ),
    "opt": Case("OPTForCausalLM", OPT),
    "opt-narrow": Case("OPTForCausalLM", {**OPT, "word_embed_proj_dim": 20, "do_layer_norm_before": False}),
    "opt-bare": Case("OPTModel", {**OPT, "enable_bias": False}, outputs="", slow=True),
    "gptj": Case("GPTJForCausalLM", GPTJ),
    "gptj-bare": Case("GPTJModel", {**GPTJ, "rotary_dim": 6, "n_inner": 40}, outputs="", slow=True),
    "olmo3": Case("Olmo3ForCausalLM", {**GROUPED, "num_hidden_layers": 4, "sliding_window": 6}),
    "olmo3-scaled": Case(
        "Olmo3ForCausalLM",
        {
            **GROUPED,
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, **SCALINGS["yarn"]},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
            },
        },
        slow=True,
    ),
    "ministral3": Case("Ministral3ForCausalLM", {**GROUPED, "head_dim": 12, **TEMPERED}),
    "ministral": Case(
        "MinistralForCausalLM",
        {**GROUPED, "head_dim": 8, "sliding_window": 6, "layer_types": ["full_attention", "sliding_attention"]},
        slow=True,
    ),
    "mbart": Case("MBartForConditionalGeneration", BART, does="translate", places="counted"),
    "m2m-100": Case("M2M100ForConditionalGeneration", M2M100, does="translate", places="counted"),
    "m2m-100-bare": Case("M2M100Model", M2M100, does="translate", places="counted", outputs="", slow=True),
    "umt5": Case("UMT5ForConditionalGeneration", T5, does="translate", places="relative", slow=True),
    "t5": Case("T5ForConditionalGeneration", T5, does="translate", places="relative"),
    "t5-gated": Case(
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1},
        does="translate",
        places="relative",
    ),
    "t5-bare": Case("T5Model", T5, does="translate", places="relative", outputs=""),
    "t5-encoder": Case("T5EncoderModel", T5, does="read", outputs=""),
    "mt5-encoder": Case(
        "MT5EncoderModel", {**T5, "feed_forward_proj": "gated-gelu"}, does="read", outputs="", slow=True
    ),
    "umt5-encoder": Case("UMT5EncoderModel", T5, does="read", outputs="", slow=True),
    "mt5": Case("MT5ForConditionalGeneration", T5, does="translate", places="relative"),
    "mt5-bare": Case("MT5Model", T5, does="translate", places="relative", outputs=""),
}


@dataclass
class Pair:
    """One model twice: theirs, saved to `folder`, and ours, loaded from there."""

    case: Case
    theirs: Any
    run: Any
    place: tempfile.TemporaryDirectory[str]  # gone with the process

    @property
    def folder(self) -> Path:
        return Path(self.place.name)

    @property
    def ours(self) -> Any:
        return self.run.model


@functools.cache
def pair(name: str) -> Pair:
    """Both models of a case, made once for all tests."""
    return made(CASES[name] if name in CASES else RANDOM[name], name)


RANDOM: dict[str, Case] = {}
"""Cases that another module adds."""


def parameters(cases: Mapping[str, Case], chosen: Callable[[Case], object] = lambda case: True) -> list[Any]:
    """The names of the cases that are chosen, as parameters of tests."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
        for name, case in cases.items()
        if chosen(case)
    ]


@functools.cache
def saved(name: str) -> Path:
    """What ours is saved as for the Hub, once for all tests, which don't change it."""
    folder = pair(name).folder / "saved"
    return pair(name).run.save(folder, to="hub")


def made(case: Case, name: str) -> Pair:
    """Both models of a case, with numbers by its name."""
    from qkv.runs.inference.run import load

    torch.manual_seed(sum(map(ord, name)))
    cls = getattr(transformers, case.cls)
    tokens = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    theirs = cls(cls.config_class(**{**tokens, **case.config}, attn_implementation=case.attention)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # far from their starting values, so no two of them are alike
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.3))
        if hasattr(theirs, "final_logits_bias"):
            theirs.final_logits_bias.normal_()
    place = tempfile.TemporaryDirectory(prefix="qkv-parity-")
    theirs.save_pretrained(place.name)
    return Pair(case, theirs, load(place.name, device="cpu"), place)


@dataclass
class Inputs:
    """A padded batch: ids, the mask of real tokens, their positions, segments and roles; sources for an encoder–decoder."""

    ids: Tensor
    mask: Tensor
    positions: Tensor
    types: Tensor | None
    chosen: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None


def inputs(case: Case, side: str = "right", lengths: tuple[int, ...] | None = None) -> Inputs:
    generator = torch.Generator().manual_seed(3)
    lengths = lengths or case.lengths
    mask = _mask(lengths, side)
    ids = torch.randint(6, VOCABULARY, mask.shape, generator=generator).masked_fill(mask == 0, PAD)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    types = torch.randint(0, 2, mask.shape, generator=generator) if case.types else None
    made = Inputs(ids, mask, positions, types)
    if case.chosen:
        made.chosen = (torch.rand(mask.shape, generator=generator) < 0.15).long() * mask
        made.chosen[1] = 0  # a row without any
    if case.does == "translate":
        made.source_mask = _mask(tuple(reversed(lengths)), "right")
        made.source = torch.randint(6, VOCABULARY, mask.shape, generator=generator)
        made.source = made.source.masked_fill(made.source_mask == 0, PAD)
    return made


def _mask(lengths: tuple[int, ...], side: str) -> Tensor:
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return (mask.flip(1) if side == "left" else mask).long()


def theirs(pair: Pair, given: Inputs, model: Any = None) -> Tensor:
    """Their head's output, or their last hidden states."""
    case = pair.case
    options: dict[str, Any] = {"attention_mask": given.mask, "input_ids": given.ids}
    if case.does == "translate":
        options = {"attention_mask": given.source_mask, "input_ids": given.source, "decoder_input_ids": given.ids}
        options |= {"decoder_attention_mask": given.mask}
    if case.types:
        options["token_type_ids"] = given.types
    if case.chosen:
        options["global_attention_mask"] = given.chosen
    if case.does == "continue" and case.places == "given":
        options["position_ids"] = given.positions
    out = (model or pair.theirs)(**options)
    found = getattr(out, case.outputs) if case.outputs else out.last_hidden_state
    return found.unsqueeze(-1) if case.labels == 1 else found


def ours(pair: Pair, given: Inputs, model: Any = None, **options: Any) -> Any:
    """Our output for the same batch."""
    model = model or pair.ours
    if pair.case.does == "translate":
        return model(given.source, given.ids, attention_mask=given.source_mask, target_mask=given.mask, **options)
    if given.chosen is not None:
        layout = Layout.from_mask(given.mask).with_global(given.chosen)
        return model(given.ids, layout=layout, token_types=given.types, **options)
    return model(given.ids, attention_mask=given.mask, token_types=given.types, **options)
