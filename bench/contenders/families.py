"""Small models of the Hub's families, by configurations that both sides read, and what is done with them.

Of libraries it needs PyTorch alone, as both environments read it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

VOCABULARY, PROMPT, NEW = 8192, 64, 64

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 512,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 64}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 512, "n_embd": 512, "n_layer": 4, "n_head": 8}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 512, "n_layer": 4, "n_head": 8}
MPT = {"vocab_size": VOCABULARY, "d_model": 512, "n_layers": 4, "n_heads": 8, "max_seq_len": 512}
DISTILBERT = {"vocab_size": VOCABULARY, "dim": 512, "hidden_dim": 1536, "n_layers": 4, "n_heads": 8}
PAIRS = {
    "vocab_size": VOCABULARY,
    "d_model": 512,
    "max_position_embeddings": 512,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 1536 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 8 for side in ("encoder", "decoder")},
}
T5 = {"vocab_size": VOCABULARY, "d_model": 512, "d_kv": 64, "d_ff": 1536, "num_layers": 2, "num_heads": 8}

# Family: its class, what the class does, its sizes.
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "continue", GPT2),
    "gpt_neox": ("GPTNeoXForCausalLM", "continue", SIZES),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "continue", GPT2),
    "bloom": ("BloomForCausalLM", "continue", BLOOM),
    "falcon": ("FalconForCausalLM", "continue", {k: v for k, v in SIZES.items() if k != "intermediate_size"}),
    "mpt": ("MptForCausalLM", "continue", MPT),
    "llama": ("LlamaForCausalLM", "continue", GROUPED),
    "mistral": ("MistralForCausalLM", "continue", {**GROUPED, "sliding_window": 96}),
    "qwen2": ("Qwen2ForCausalLM", "continue", {k: v for k, v in GROUPED.items() if k != "head_dim"}),
    "qwen3": ("Qwen3ForCausalLM", "continue", GROUPED),
    "gemma2": ("Gemma2ForCausalLM", "continue", {**GROUPED, "sliding_window": 96, "query_pre_attn_scalar": 64}),
    "phi3": ("Phi3ForCausalLM", "continue", {k: v for k, v in GROUPED.items() if k != "head_dim"}),
    "mixtral": ("MixtralForCausalLM", "continue", {**GROUPED, "intermediate_size": 768, "sliding_window": None}),
    "bert": ("BertForMaskedLM", "read", SIZES),
    "roberta": ("RobertaForMaskedLM", "read", {**SIZES, "pad_token_id": 1}),
    "distilbert": ("DistilBertForMaskedLM", "read", DISTILBERT),
    "bart": ("BartForConditionalGeneration", "translate", PAIRS),
    "marian": ("MarianMTModel", "translate", PAIRS),
    "t5": ("T5ForConditionalGeneration", "translate", T5),
}
TOKENS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}

_HIDDEN = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_OF_PAIRS = ("dropout", "attention_dropout", "activation_dropout")
DROPOUT: dict[str, tuple[str, ...]] = {
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "gpt_bigcode": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "bert": _HIDDEN,
    "roberta": _HIDDEN,
    "distilbert": ("dropout", "attention_dropout"),
    "bart": _OF_PAIRS,
    "marian": _OF_PAIRS,
    "t5": ("dropout_rate",),
}


def config(family: str) -> dict[str, Any]:
    """The configuration of one model, dropout off wherever the family has it."""
    cls, does, sizes = CONFIGS[family]
    made = {**TOKENS, **sizes, "architectures": [cls], "model_type": family}
    made |= dict.fromkeys(DROPOUT.get(family, ()), 0.0)
    if does == "translate":
        made |= {"decoder_start_token_id": 1, "forced_eos_token_id": None, "is_encoder_decoder": True}
    return made


def ids(batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)
