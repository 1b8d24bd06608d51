"""Tokenizers written for the Hub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from made_tokenizers import SPECS, TEXTS, made
from tokenizers import AddedToken
from word_tokenizers import folder, words

from qkv.data.tokenizers.hub_export import hub_config, save_for_hub
from qkv.data.tokenizers.tokenizer import Tokenizer

PYTHON = Path(__file__).parents[3] / "bench/.envs/huggingface/bin/python"


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


def test_flags_of_tokens_survive(tmp_path: Path) -> None:
    raw = words("<m>")
    raw.add_special_tokens([AddedToken("<m>", lstrip=True, special=True)])
    path = folder(tmp_path, raw, tokenizer_config={"mask_token": "<m>"})
    again = Tokenizer.load(save_for_hub(Tokenizer.load(path), tmp_path / "again"))
    assert next(iter(again.raw.get_added_tokens_decoder().values())).lstrip


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
