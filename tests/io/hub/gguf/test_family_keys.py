"""Metadata of single families, both ways; what llama.cpp can't compute is refused."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.io.hub.gguf.family_keys import (
    BigCodeHeads,
    FalconShape,
    FourTimes,
    GemmaRopes,
    GGUFUnrotated,
    MPTAttention,
    QueryWidth,
)
from qkv.io.hub.gguf.keys import TENSORS


@pytest.mark.parametrize(("multi_query", "kv_heads"), [(True, 1), (False, 8)])
def test_starcoders_heads_share_one_key_or_none(multi_query: bool, kv_heads: int) -> None:
    config = {"n_head": 8, "multi_query": multi_query}
    written = BigCodeHeads().write(config)
    assert written == {"attention.head_count": 8, "attention.head_count_kv": kv_heads}
    assert BigCodeHeads().read({**written, "embedding_length": 64}) == config
    with pytest.raises(ValueError, match="it is 1 or all 8 heads"):
        BigCodeHeads().read({**written, "attention.head_count_kv": 2})


@pytest.mark.parametrize(
    ("kv_heads", "tensors", "new"), [(1, {}, False), (1, {"blk.0.attn_norm_2.weight": (4,)}, True), (2, {}, True)]
)
def test_falcons_architecture_follows_from_its_heads_and_norms(
    kv_heads: int, tensors: dict[str, Any], new: bool
) -> None:
    written = FalconShape().write({"num_attention_heads": 4, "num_kv_heads": kv_heads})
    found = FalconShape().read({**written, TENSORS: tensors})
    assert (found["new_decoder_architecture"], found["multi_query"]) == (new, kv_heads == 1)
    assert found["num_ln_in_parallel_attn"] == 1 + len(tensors)
    with pytest.raises(ValueError, match="and this model has alibi=True"):
        FalconShape().write({"num_attention_heads": 4, "num_kv_heads": 1, "alibi": True})


def test_feed_forward_layers_are_four_times_as_wide() -> None:
    assert FourTimes("n_embd").write({"n_embd": 24}) == {"feed_forward_length": 96}
    assert FourTimes("n_embd").read({"embedding_length": 24, "feed_forward_length": 96}) == {}
    with pytest.raises(ValueError, match="feed_forward_length is 48, and four times the width of 24"):
        FourTimes("n_embd").read({"embedding_length": 24, "feed_forward_length": 48})


def test_mpts_slopes_come_back_as_whole_numbers() -> None:
    written = MPTAttention().write({"attn_config": {"alibi_bias_max": 8}})
    assert written == {"attention.max_alibi_bias": 8.0}
    assert MPTAttention().read(written) == {"attn_config": {"alibi": True, "alibi_bias_max": 8}}
    with pytest.raises(ValueError, match=r"this model has softmax_scale=0\.5"):
        MPTAttention().write({"attn_config": {"alibi_bias_max": 8, "softmax_scale": 0.5}})
    with pytest.raises(ValueError, match="MPT without ALiBi"):
        MPTAttention().read({})


def test_every_fourth_layer_of_smollm3_has_no_positions() -> None:
    assert GGUFUnrotated().read({"block_count": 5}) == {"no_rope_layers": [1, 1, 1, 0, 1]}
    assert GGUFUnrotated().write({"no_rope_layers": [1, 1, 1, 0, 1]}) == {}
    with pytest.raises(ValueError, match="leaves out positions in every 4th layer"):
        GGUFUnrotated().write({"no_rope_layers": [0, 1]})
    with pytest.raises(ValueError, match="block_count must be a number of layers, not -1"):
        GGUFUnrotated().read({"block_count": -1})


@pytest.mark.parametrize(("layers", "scalar"), [(26, 16), (62, 12)])
def test_gemmas_scale_is_the_width_of_heads_but_in_its_27b_model(layers: int, scalar: int) -> None:
    config = {"num_hidden_layers": layers, "hidden_size": 48, "num_attention_heads": 4, "head_dim": 16}
    assert QueryWidth(62).write({**config, "query_pre_attn_scalar": scalar}) == {}
    with pytest.raises(ValueError, match="and this model by √9"):
        QueryWidth(62).write({**config, "query_pre_attn_scalar": 9})
    metadata = {"attention.head_count": 4, "attention.key_length": 16, "attention.value_length": 16}
    metadata |= {"block_count": layers, "embedding_length": 48}
    assert QueryWidth(62).read(metadata) == {"query_pre_attn_scalar": scalar}


def test_gemma_3_has_two_rotary_bases() -> None:
    local = {"rope_type": "default", "rope_theta": 10000.0}
    config = {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": local}
    }
    written = GemmaRopes().write({**config, "head_dim": 16, "max_position_embeddings": 64})
    assert written["rope.freq_base_swa"] == 10000.0
    found = GemmaRopes().read({**written, "attention.key_length": 16})["rope_parameters"]
    assert found["sliding_attention"] == local and found["full_attention"]["rope_theta"] == 1e6
    scaled = {"full_attention": local, "sliding_attention": {**local, "rope_type": "linear", "factor": 2.0}}
    with pytest.raises(ValueError, match="gemma3 scales no positions of layers with a window"):
        GemmaRopes().write({"rope_parameters": scaled, "head_dim": 16})
