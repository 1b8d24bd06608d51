"""Tiny encoder–decoders of `transformers` with their tokenizers, saved as Hub directories, and pairs of texts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

SIZES = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 32}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}
# The class, its sizes, the tokens in the order of their ids with what they do, and what stands around a text.
LIBRARY: dict[str, tuple[str, dict[str, Any], list[str], str]] = {
    "t5": ("T5", T5, ["<pad>", "</s>", "<unk>"], "$A </s>"),
    "bart": ("Bart", SIZES, ["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>"),
    "marian": ("Marian", SIZES, ["</s>", "<unk>", "<pad>"], "$A </s>"),
}
STARTS = {"t5": "<pad>", "bart": "</s>", "marian": "<pad>"}
PAIRS = [("a b c", "c b a"), ("b", "b b d a"), ("c a b d a", "d"), ("d d", "a c c")]


def save_hub_pair(name: str, folder: Path) -> tuple[Any, Any]:
    """A tiny model of another library with its tokenizer, and their directory."""
    transformers = pytest.importorskip("transformers", reason="losses are compared with Hugging Face's transformers")
    kind, sizes, special, template = LIBRARY[name]
    words = {word: i for i, word in enumerate([*special, *"abcd", *(f"<{i}>" for i in range(9))])}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    raw.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[(token, words[token]) for token in special if token in template]
    )
    named = {"<s>": "bos_token", "</s>": "eos_token", "<pad>": "pad_token", "<unk>": "unk_token"}
    roles = {named[token]: token for token in special}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **roles)
    ids = {f"{role}_id": words[token] for role, token in roles.items() if role != "unk_token"}
    start = {"decoder_start_token_id": words[STARTS[name]], "forced_eos_token_id": None}
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(words), **sizes, **ids, **start)
    cls = f"{kind}MTModel" if name == "marian" else f"{kind}ForConditionalGeneration"
    torch.manual_seed(0)
    model = getattr(transformers, cls)(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
