"""Architectures of llama.cpp: which one a family has, and which family a file is of."""

from __future__ import annotations

import pytest

from qkv.io.families import FAMILIES
from qkv.io.hub.gguf.architectures import ARCHITECTURES, of_file, of_model_type


def test_each_family_has_one_architecture_and_is_a_family_of_qkv() -> None:
    names = [entry.model_type for entry in ARCHITECTURES]
    assert len(set(names)) == len(names) and set(names) <= set(FAMILIES)
    assert of_model_type("mistral").name == "llama" and of_model_type("gemma3_text").name == "gemma3"


def test_a_file_of_llama_is_a_mixtral_if_it_has_experts() -> None:
    assert of_file("llama", {}).model_type == "llama" == of_file("llama", {"expert_count": 0}).model_type
    assert of_file("llama", {"expert_count": 8}).model_type == "mixtral"


def test_others_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="qkv writes no GGUF files of 't5'; it writes them of gpt2, gpt_bigcode"):
        of_model_type("t5")
    with pytest.raises(
        ValueError, match=r"general\.architecture is 'lama', which is not built here; did you mean 'llama'"
    ):
        of_file("lama", {})


def test_a_missing_output_matrix_is_the_embedding() -> None:
    """`tied` is the configuration key of a shared embedding; gemma2 always shares it and has no such key."""
    metadata = {
        "context_length": 64, "embedding_length": 32, "block_count": 2, "feed_forward_length": 48,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e4,
    }  # fmt: skip
    for tensors, tied in ({"output.weight": 0}, False), ({}, True):
        config = of_model_type("qwen3").config(metadata, tensors, 99)
        assert config["tie_word_embeddings"] is tied and config["vocab_size"] == 99
        assert config["num_key_value_heads"] == 2 and config["intermediate_size"] == 48
        assert config["architectures"] == ["Qwen3ForCausalLM"]
