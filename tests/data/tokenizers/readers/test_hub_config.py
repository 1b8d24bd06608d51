"""Configuration files beside a tokenizer: roles and flags come from them, and what is written is read back the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_tokenizers import TEXTS
from tokenizers import Tokenizer as Raw
from word_tokenizers import folder, words

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE


def test_roles_come_from_the_configuration(tmp_path: Path) -> None:
    """<s> is a usual name for a beginning; here it is padding, because the configuration says so."""
    config = {"pad_token": "<s>", "bos_token": {"content": "<go>", "lstrip": False}, "eos_token": None}
    tokenizer = Tokenizer.load(folder(tmp_path, words("<s>", "</s>", "<go>"), tokenizer_config=config))
    assert tokenizer.roles == {"pad": "<s>", "bos": "<go>"}
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id) == (3, 5, None)
    assert tokenizer.encode("a <go>", control=True) == [1, 5] and 5 not in tokenizer.encode("a <go>")
    assert Tokenizer.from_json(tokenizer.to_json()).roles == tokenizer.roles


def test_special_tokens_map_and_added_tokens(tmp_path: Path) -> None:
    files = {
        "special_tokens_map": {"unk_token": "[UNK]", "mask_token": {"content": "<m>", "lstrip": True}},
        "added_tokens": {"<m>": 3, "<de>": 4},
        "tokenizer_config": {"model_max_length": 99},
    }
    tokenizer = Tokenizer.load(folder(tmp_path, words(), **files))
    assert tokenizer.roles == {"unk": "[UNK]", "mask": "<m>"} and tokenizer.markers == ("<de>",)
    assert tokenizer.encode("a <de> b") == [1, 4, 2] and tokenizer.config["model_max_length"] == 99


def test_added_tokens_decoder_and_more_special_tokens(tmp_path: Path) -> None:
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    config = {
        "added_tokens_decoder": {"3": {"content": "<x>", "special": True, **flags}, "4": {"content": "<y>", **flags}},
        "additional_special_tokens": ["<x>", "<z>"],
        "eos_token": "<x>",
    }
    tokenizer = Tokenizer.load(folder(tmp_path, words(), tokenizer_config=config))
    assert tokenizer.controls == {"<x>": 3, "<z>": 5} and tokenizer.markers == ("<y>",)
    assert tokenizer.eos_id == 3


def test_a_models_type_says_what_a_bare_configuration_does_not(tmp_path: Path) -> None:
    tokenizer = train(BPE(vocab_size=300, pad=None, unk=None, bos=None, eos="<|endoftext|>"), TEXTS)
    raw = Raw.from_str(tokenizer.to_json())
    path = folder(tmp_path, raw, config={"model_type": "gpt2"}, tokenizer_config={"model_max_length": 1024})
    assert Tokenizer.load(path).roles == dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>")


def test_clean_up_is_done_where_it_is_asked_for(tmp_path: Path) -> None:
    raw = words(".", "'s", "?")
    path = folder(tmp_path, raw, tokenizer_config={"clean_up_tokenization_spaces": True})
    assert Tokenizer.load(path).decode([1, 4, 2, 3]) == "a's b."
    assert Tokenizer.load(folder(tmp_path, raw, tokenizer_config={})).decode([1, 4, 2, 3]) == "a 's b ."


def test_what_a_model_needs_is_named() -> None:
    tokenizer = train(BPE(vocab_size=300, pad=None), TEXTS)
    tokenizer.require("eos", "unk")
    with pytest.raises(ValueError, match=r"has no pad and no mask token; its control tokens are <unk>, <s>, </s>"):
        tokenizer.require("pad", "eos", "mask")


# -- writing ------------------------------------------------------------------------------------------------------------
