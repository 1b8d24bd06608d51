"""Names of tensors in GGUF beside a model's."""

from __future__ import annotations

import pytest

import qkv
from qkv.io.hub.gguf import tensor_names
from qkv.io.hub.gguf.transforms import RotatedNeighbors, Shifted

SMALL = {"vocab_size": 30, "d_model": 16, "n_layers": 1, "n_heads": 4}


def ours_of(table: tensor_names.Table, theirs: str) -> str:
    return next(row.ours for row in table if row.theirs == theirs)


@pytest.mark.parametrize(("branches", "attention"), [("one-norm", "attn_norm"), ("two-norms", "attn_norm_2")])
def test_with_two_norms_falcons_attention_has_the_second(branches: str, attention: str) -> None:
    table = tensor_names.falcon(qkv.preset("falcon-7b", **SMALL, n_kv_heads=1, branches=branches))
    assert ours_of(table, f"blk.{{i}}.{attention}.*") == "decoder.blocks.{i}.norm.attention.*"


def test_llamas_queries_and_keys_are_turned_by_their_own_heads_and_qwens_are_not() -> None:
    llama = tensor_names.neighbors(qkv.preset("llama", **SMALL, n_kv_heads=2, d_ff=24))
    turns = {row.theirs: row.how for row in llama if isinstance(row.how, RotatedNeighbors)}
    assert turns == {"blk.{i}.attn_q.*": RotatedNeighbors(4), "blk.{i}.attn_k.*": RotatedNeighbors(2)}
    qwen = tensor_names.halves(qkv.preset("qwen3-0.6b", **SMALL, n_kv_heads=2, d_ff=24))
    assert not any(isinstance(row.how, RotatedNeighbors) for row in qwen)


def test_gemmas_norms_and_no_other_tensors_hold_one_more() -> None:
    table = tensor_names.gemma(qkv.preset("gemma-2-2b", **SMALL, n_kv_heads=2, d_ff=24))
    shifted = {row.theirs for row in table if row.how == Shifted(1.0)}
    assert shifted == {row.theirs for row in table if "norm" in row.theirs} and len(shifted) == 6


def test_experts_take_the_place_of_a_feed_forward_layer() -> None:
    mixture = tensor_names.neighbors(qkv.preset("mixtral-8x7b", **SMALL, n_kv_heads=2, d_ff=24, n_experts=2))
    assert ours_of(mixture, "blk.{i}.ffn_gate_inp.weight") == "decoder.blocks.{i}.feedforward.router.weight"
    assert "blk.{i}.ffn_[gate,up,down].*" not in {row.theirs for row in mixture}
