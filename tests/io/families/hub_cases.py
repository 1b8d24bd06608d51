"""Tiny configurations of the Hub's own classes, one entry a case: what the parity suite holds every family to.

A new family is an entry in `CASES`; a quirk (a window, tied tables, a rotary scaling) is another entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hub_sizes import (
    ALBERT,
    BART,
    BIG_BIRD,
    BLOOM,
    DISTILBERT,
    ELECTRA,
    ESM,
    ESMS_NAMES,
    EXPERTS,
    FALCON,
    GEMMA,
    GPT,
    GPT2,
    GPTJ,
    GROUPED,
    HALF_LONG,
    LENGTHS,
    LONGFORMER,
    M2M100,
    MARIAN,
    MODERN,
    MPT,
    NARROW,
    OPT,
    PEGASUS,
    QUARTER,
    SCALINGS,
    SHARED,
    SIZES,
    T5,
    TEMPERED,
    VOCABULARY,
    XLM_R,
    rope,
)

transformers = pytest.importorskip(
    "transformers", reason="parity is with Hugging Face's transformers, a test dependency"
)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


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
