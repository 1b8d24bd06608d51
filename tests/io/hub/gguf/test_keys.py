"""Entries of GGUF metadata and configuration keys, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.io.hub.gguf.keys import TENSORS, Heads, Narrowed, Present, Same, Says, decimal, number, scalar


def test_a_number_in_fp32_is_read_as_its_shortest_decimal() -> None:
    assert decimal(float(np.float32(1e-5))) == 1e-5 and decimal(7) == 7
    entry = number("epsilon", "rms_norm_eps")
    assert entry.write({"rms_norm_eps": 1e-6}) == {"epsilon": 1e-6}
    assert entry.read({"epsilon": float(np.float32(1e-6))}) == {"rms_norm_eps": 1e-6}


def test_a_key_may_be_usual_or_optional_but_not_missing() -> None:
    assert Same("length", "n_positions").write({"n_positions": 8.0}) == {"length": 8}
    assert Same("length", "n_positions", usual=4).read({}) == {"n_positions": 4}
    assert Same("length", "n_positions", optional=True).read({}) == {}
    with pytest.raises(ValueError, match="its metadata lacks 'length'"):
        Same("length", "n_positions").read({})
    with pytest.raises(ValueError, match="length is an array, one value for each layer"):
        scalar({"length": [1, 2]}, "length")


def test_what_llama_cpp_can_not_say_is_refused() -> None:
    entry = Says("hidden_act", ("silu", "swish"), "feed-forward layer")
    assert entry.write({"hidden_act": "swish"}) == {} and entry.read({}) == {"hidden_act": "silu"}
    with pytest.raises(ValueError, match="hidden_act has to be silu or swish there, and this model's is relu"):
        entry.write({"hidden_act": "relu"})


def test_a_flag_is_true_if_its_tensor_is_there() -> None:
    entry = Present("attention_bias", "blk.0.attn_q.bias")
    assert entry.read({TENSORS: {"blk.0.attn_q.bias": (4,)}}) == {"attention_bias": True}
    assert entry.read({TENSORS: {}}) == {"attention_bias": False}


def test_heads_have_their_width_there_and_back() -> None:
    config: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "head_dim": None}
    written = Heads().write(config)
    assert written == {
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 8,
        "attention.value_length": 8,
    }
    assert Heads().read(written) == {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    with pytest.raises(ValueError, match="which are the same in this family"):
        Heads().read({**written, "attention.value_length": 4})
    with pytest.raises(ValueError, match="this model has 3 heads and a width of 32"):
        Heads(head_dim=None).write({**config, "num_attention_heads": 3})


def test_the_context_is_no_longer_than_a_window() -> None:
    config: dict[str, Any] = {"sliding_window": 16, "max_position_embeddings": 64}
    assert Narrowed().write(config) == {"context_length": 16}
    assert Narrowed().as_written(config) == {"sliding_window": None, "max_position_embeddings": 16}
    assert Narrowed().write({**config, "layer_types": ["full_attention"]}) == {}
    assert Narrowed().write({**config, "sliding_window": 64}) == {}
