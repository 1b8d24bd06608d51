"""Lengths and forced tokens of Hub directories, as transformers' `generate` has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import qkv

transformers = pytest.importorskip("transformers")

WORDS = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 40)}}
SIZES = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PROMPTS = ("w5", "w7 w8 w9", "w10 w11 w12 w13 w14 w15")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        **SIZES, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    return saved(transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def encoder_decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(4)
    config = transformers.BartConfig(
        **SIZES, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, decoder_start_token_id=2, init_std=0.5,
    )  # fmt: skip
    return saved(transformers.BartForConditionalGeneration(config), tmp_path_factory.mktemp("encoder-decoder"))


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    raw = Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(folder)
    return folder


def compare(folder: Path, cls: str, settings: dict[str, Any], config: dict[str, Any] | None = None) -> None:
    """Both generate the same ids for each prompt alone, and qkv for all of them together."""
    start = {"decoder_start_token_id": 2} if cls.startswith("Bart") else {}
    roles = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **start}
    (folder / "generation_config.json").write_text(json.dumps({**roles, **settings}))
    plain = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**plain, **(config or {})}))
    try:
        theirs = getattr(transformers, cls).from_pretrained(folder).eval()
        run = qkv.load(folder, device="cpu")
    finally:
        (folder / "config.json").write_text(json.dumps(plain))
    wanted = []
    for prompt in PROMPTS:
        ids = torch.tensor([[WORDS[word] for word in prompt.split()]])
        wanted.append(theirs.generate(input_ids=ids)[0, 1 if start else ids.shape[1] :].tolist())
    prompts = [[WORDS[word] for word in prompt.split()] for prompt in PROMPTS]
    found = run.outputs_of(prompts, run.generation)
    assert [[WORDS[token] for token in one[0].tokens] for one in found] == wanted


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length": 20},
        {"max_length": 20, "min_length": 15},
        {"max_length": 20, "min_new_tokens": 12},
        {"max_new_tokens": 9, "min_length": 8},
        {"max_length": 7, "max_new_tokens": 12},
        {"max_new_tokens": 6, "forced_bos_token_id": 33},
        {"max_length": 12, "forced_eos_token_id": 30, "num_beams": 2},
    ],
    ids=str,
)
def test_a_decoders_lengths_and_forced_tokens(decoder: Path, settings: dict[str, Any]) -> None:
    compare(decoder, "LlamaForCausalLM", settings)


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"max_length": 9, "min_length": 6}, {}),
        ({"max_new_tokens": 6, "forced_bos_token_id": 33, "forced_eos_token_id": 30}, {}),
        ({"max_new_tokens": 6}, {"forced_eos_token_id": 30, "forced_bos_token_id": 33}),
    ],
    ids=str,
)
def test_an_encoder_decoders_lengths_and_forced_tokens(
    encoder_decoder: Path, settings: dict[str, Any], config: dict[str, Any]
) -> None:
    compare(encoder_decoder, "BartForConditionalGeneration", settings, config)


def test_new_tokens_that_are_asked_for_replace_the_length(decoder: Path) -> None:
    (decoder / "generation_config.json").write_text(json.dumps({"max_length": 5, "min_length": 5}))
    run = qkv.load(decoder, device="cpu")
    (output,) = run.outputs_of([[5, 6, 7]], run.settings(max_new_tokens=11, min_new_tokens=11))[0]
    assert len(output.tokens) == 11
    with pytest.raises(ValueError, match=r"the prompt has 6 tokens, and .* allows 5 with the new ones \(max_length\)"):
        run.generate("w5 w6 w7 w8 w9 w10")
    assert len(run.generate("w5 w6 w7 w8 w9 w10", max_new_tokens=3, min_new_tokens=3).split()) == 3
