"""Configuration files beside a tokenizer: roles and flags come from them, and what is written is read back the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import SPECS, TEXTS, made

from qkv.tokenizers.hub_export import hub_config, save_for_hub
from qkv.tokenizers.tokenizer import Tokenizer, train
from qkv.tokenizers.training.bpe import BPE
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Raw

PYTHON = Path(__file__).parents[3] / "bench/.envs/huggingface/bin/python"


def folder(path: Path, raw: Raw, **files: Any) -> Path:
    (path / "tokenizer.json").write_text(raw.to_str(), encoding="utf-8")
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def words(*more: str) -> Raw:
    pieces = ["[UNK]", "a", "b", *more]
    raw = Raw(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return raw


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


def test_without_configuration_usual_names_are_found(tmp_path: Path) -> None:
    raw = words("[CLS]", "[SEP]")
    raw.add_special_tokens(["[CLS]", "[SEP]", "[UNK]"])
    tokenizer = Tokenizer.load(folder(tmp_path, raw))
    assert (tokenizer.bos_id, tokenizer.cls_id, tokenizer.eos_id, tokenizer.sep_id) == (3, 3, 4, 4)


def test_flags_override_the_file(tmp_path: Path) -> None:
    raw = Raw(models.WordPiece({"[UNK]": 0, "a": 1, "A": 2}, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    path = folder(tmp_path, raw, tokenizer_config={"do_lower_case": False})
    assert Tokenizer.load(path).encode("a A") == [1, 2]
    bytes_ = Raw.from_str(made("byte").to_json())
    path = folder(tmp_path, bytes_, tokenizer_config={"add_prefix_space": True})
    assert Tokenizer.load(path).decode(Tokenizer.load(path).encode("a")) in (" a", "a")


def test_clean_up_is_done_where_it_is_asked_for(tmp_path: Path) -> None:
    raw = words(".", "'s", "?")
    path = folder(tmp_path, raw, tokenizer_config={"clean_up_tokenization_spaces": True})
    assert Tokenizer.load(path).decode([1, 4, 2, 3]) == "a's b."
    assert Tokenizer.load(folder(tmp_path, raw, tokenizer_config={})).decode([1, 4, 2, 3]) == "a 's b ."


def test_a_file_of_ours_needs_no_configuration(tmp_path: Path) -> None:
    config = {"pad_token": "<s>", "bos_token": "<go>"}
    first = Tokenizer.load(folder(tmp_path, words("<s>", "<go>"), tokenizer_config=config))
    first.save(tmp_path)  # the tokenizer_config.json beside it is now an older one
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "b"}')
    assert Tokenizer.load(tmp_path).roles == first.roles


def test_what_a_model_needs_is_named() -> None:
    tokenizer = train(BPE(vocab_size=300, pad=None), TEXTS)
    tokenizer.require("eos", "unk")
    with pytest.raises(ValueError, match=r"has no pad and no mask token; its control tokens are <unk>, <s>, </s>"):
        tokenizer.require("pad", "eos", "mask")


def test_parts_of_ours_that_are_broken() -> None:
    data = json.loads(made("word").to_json())
    for part in ({"roles": {"king": "<s>"}}, {"roles": []}, {"dropout": 2}, {"more": 1}, [1]):
        data["model"]["qkv"] = part
        with pytest.raises(ValueError, match="'qkv' part is not one that this version"):
            Tokenizer.from_json(json.dumps(data))
    data["model"]["qkv"] = {"roles": {"pad": "<pda>"}}
    with pytest.raises(ValueError, match=r"its pad token is '<pda>'; did you mean '<pad>'"):
        Tokenizer.from_json(json.dumps(data))


# -- writing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_what_is_written_names_every_special_token(name: str, tmp_path: Path) -> None:
    tokenizer = made(name)
    config = json.loads((save_for_hub(tokenizer, tmp_path, max_length=64) / "tokenizer_config.json").read_text())
    assert config == hub_config(tokenizer, 64)
    assert {role: config[f"{role}_token"] for role in tokenizer.roles} == tokenizer.roles
    added = {int(i): token["content"] for i, token in config["added_tokens_decoder"].items()}
    assert added == {tokenizer.id(token): token for token in (*tokenizer.controls, *tokenizer.markers)}
    assert Tokenizer.load(tmp_path).to_json() == tokenizer.to_json()
    (tmp_path / "tokenizer.json").write_text(tokenizer.raw.to_str())  # as another program leaves it, without our part
    again = Tokenizer.load(tmp_path)
    assert again.roles == tokenizer.roles and again.markers == tokenizer.markers
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


def test_what_a_configuration_said_is_written_again(tmp_path: Path) -> None:
    config = {
        "chat_template": "{{ messages }}",
        "pad_token": "b",
        "padding_side": "left",
        "additional_special_tokens": ["a"],
    }
    tokenizer = Tokenizer.load(folder(tmp_path, words(), tokenizer_config=config))
    written = hub_config(Tokenizer.from_json(tokenizer.to_json()))
    assert (written["chat_template"], written["padding_side"], written["pad_token"]) == ("{{ messages }}", "left", "b")
    assert written["extra_special_tokens"] == ["a"] and "additional_special_tokens" not in written


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.is_file(), reason=f"there is no environment with transformers at {PYTHON.parent.parent}")
def test_transformers_loads_what_is_written(tmp_path: Path) -> None:
    program = """
import json, sys
from transformers import AutoTokenizer
texts, rows = json.load(open(sys.argv[1])), {}
for folder in sys.argv[2:]:
    t = AutoTokenizer.from_pretrained(folder)
    ids = [t(text, add_special_tokens=False)["input_ids"] for text in texts]
    roles = {k: t.convert_tokens_to_ids(v) for k, v in t.special_tokens_map.items() if isinstance(v, str)}
    rows[folder] = [ids, [t.decode(row) for row in ids], roles]
print(json.dumps(rows))
"""
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS[:3]))
    folders = {name: save_for_hub(made(name), tmp_path / name) for name in SPECS}
    command = [str(PYTHON), "-c", program, str(tmp_path / "texts.json"), *map(str, folders.values())]
    there = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for name, path in folders.items():
        ids, texts, roles = there[str(path)]
        assert ids == made(name).encode_batch(TEXTS[:3]) and texts == made(name).decode_batch(ids, skip_special=False)
        assert {role: made(name).id(token) for role, token in made(name).roles.items()} == {
            key.removesuffix("_token"): i for key, i in roles.items()
        }


def test_flags_of_tokens_survive(tmp_path: Path) -> None:
    raw = words("<m>")
    raw.add_special_tokens([AddedToken("<m>", lstrip=True, special=True)])
    path = folder(tmp_path, raw, tokenizer_config={"mask_token": "<m>"})
    again = Tokenizer.load(save_for_hub(Tokenizer.load(path), tmp_path / "again"))
    assert next(iter(again.raw.get_added_tokens_decoder().values())).lstrip
