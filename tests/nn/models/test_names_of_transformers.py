"""Models by the names of transformers: sizes make as many parameters, labels that equal the ids, loading and saving."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import qkv


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "kind", "sizes"),
    [
        ("gpt2", "GPT2", {"n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 17, "vocab_size": 31, "n_inner": 50}),
        (
            "llama",
            "Llama",
            {
                "hidden_size": 24,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 50,
                "head_dim": 10,
                "tie_word_embeddings": True,
                "vocab_size": 31,
                "mlp_bias": True,
            },
        ),
        (
            "t5-small",
            "T5",
            {
                "num_layers": 3,
                "num_decoder_layers": 2,
                "num_heads": 2,
                "d_kv": 5,
                "d_ff": 50,
                "vocab_size": 31,
                "relative_attention_num_buckets": 8,
                "d_model": 24,
            },
        ),
        (
            "bart-base",
            "Bart",
            {
                "encoder_layers": 3,
                "decoder_layers": 2,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 50,
                "decoder_ffn_dim": 40,
                "d_model": 24,
                "vocab_size": 31,
                "max_position_embeddings": 17,
            },
        ),
        (
            "mixtral-8x7b",
            "Mixtral",
            {
                "hidden_size": 24,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 50,
                "num_local_experts": 3,
                "num_experts_per_tok": 1,
                "vocab_size": 31,
            },
        ),
    ],
)
def test_the_same_sizes_make_as_many_parameters_as_in_transformers(preset: str, kind: str, sizes: Any) -> None:
    transformers = pytest.importorskip("transformers")
    usual = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    head = "LMHeadModel" if kind == "GPT2" else "ForConditionalGeneration" if kind in ("T5", "Bart") else "ForCausalLM"
    config = getattr(transformers, f"{kind}Config")(**sizes, **usual)
    theirs = getattr(transformers, f"{kind}{head}")(config)
    tensors = {**dict(theirs.named_parameters()), **dict(theirs.named_buffers())}
    fixed = [tensors["final_logits_bias"]] if "final_logits_bias" in tensors else []
    count = sum(parameter.numel() for parameter in (*theirs.parameters(), *fixed))
    assert sum(parameter.numel() for parameter in qkv.build(qkv.preset(preset, **sizes)).parameters()) == count


def model() -> Any:
    return qkv.build(qkv.preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=30))


def test_labels_that_equal_the_ids_are_told_once() -> None:
    ids, one = torch.arange(6)[None], model()
    with pytest.warns(UserWarning, match="labels are the next tokens here"):
        one(ids, labels=ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one(ids, labels=ids)
        model()(ids[:, :-1], labels=ids[:, 1:])
        model()(torch.full((1, 6), 3), labels=torch.full((1, 6), 3))  # the next tokens of a constant text
        encoder = qkv.build(qkv.preset("bert-base", d_model=16, n_layers=1, n_heads=2, vocab_size=30))
        encoder(ids, labels=ids)


def test_names_of_transformers_load_and_save(tmp_path: Any) -> None:
    assert model().save_pretrained(tmp_path / "model")
    run = qkv.from_pretrained(tmp_path / "model")
    assert (
        run.save_pretrained(tmp_path / "again")
        and qkv.from_pretrained(tmp_path / "again", device="cpu").model.spec == run.model.spec
    )
