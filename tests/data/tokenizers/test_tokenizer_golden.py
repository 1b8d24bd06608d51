"""Published tokenizers give the ids that `transformers` gives (tokenizer_golden.json, by make_tokenizer_golden.py)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizer_folders

from qkv.data.tokenizers.explain_split import Splitter
from qkv.data.tokenizers.tokenizer import Tokenizer

SHARED = Path(__file__).parents[4] / "shared" / "data" / "tokenizers"
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "tokenizer_golden.json").read_text())
TEXTS: list[str] = GOLDEN["texts"]

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"there are no published tokenizers at {SHARED}")
every = pytest.mark.parametrize("name", tokenizer_folders.CONFIGS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    for name in tokenizer_folders.CONFIGS:
        tokenizer_folders.write(name, SHARED, folder)
    return folder


@cache
def loaded(path: Path) -> Tokenizer:
    return Tokenizer.load(path)


@every
def test_ids_are_those_of_the_library(name: str, folders: Path) -> None:
    """`transformers` reads control tokens from text, which qkv does only when it is told to."""
    tokenizer, golden = loaded(folders / name), GOLDEN[name]
    control = name != "sentencepiece"  # that library never reads them
    assert tokenizer.vocab_size == golden["size"] or not control  # and its wrapper adds two
    for text, ids in zip(TEXTS, golden["ids"], strict=True):
        assert tokenizer.encode(text, control=control) == ids, text


@every
def test_roles_are_those_of_the_library(name: str, folders: Path) -> None:
    tokenizer, golden = loaded(folders / name), GOLDEN[name]["roles"]
    if name == "sentencepiece":  # without a configuration: what the trainer wrote down
        golden = {"unk": 0, "bos": 1, "eos": 2}
    given = {role: i for role, i in golden.items() if i is not None}
    assert {role: tokenizer.id(token) for role, token in tokenizer.roles.items()} == given
    assert (tokenizer.pad_id, tokenizer.mask_id) == (golden.get("pad"), golden.get("mask"))
    assert tokenizer.bos_id == (golden["cls"] if name.startswith("bert") else golden["bos"])


@every
def test_texts_are_those_of_the_library(name: str, folders: Path) -> None:
    tokenizer, golden = loaded(folders / name), GOLDEN[name]
    texts = tokenizer.decode_batch(golden["ids"], skip_special=False)
    for text, expected, ids in zip(texts, golden["decoded"], golden["ids"], strict=True):
        if name == "sentencepiece" and tokenizer.unk_id in ids:
            continue  # its own word for the unknown is ' ⁇ ', transformers' and ours `<unk>`, with other spaces
        assert text == expected


@pytest.mark.parametrize("name", ["bert-uncased", "bert-cased", "gpt2", "clip"])
def test_templates_are_those_of_the_library(name: str, folders: Path) -> None:
    tokenizer, golden = loaded(folders / name), GOLDEN[name]
    assert tokenizer.with_template(["the first"])[0].ids == golden["alone"]
    pair = tokenizer.with_template(["the first"], ["and the second"])[0]
    assert [pair.ids, pair.types] == golden["pair"]


@every
def test_saved_and_loaded_is_the_same(name: str, folders: Path, tmp_path: Path) -> None:
    tokenizer = loaded(folders / name)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.to_json() == tokenizer.to_json() and again.roles == tokenizer.roles
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert again.with_template(TEXTS[:9]) == tokenizer.with_template(TEXTS[:9])


@every
def test_no_control_token_from_text(name: str, folders: Path) -> None:
    tokenizer = loaded(folders / name)
    silent = {*tokenizer.controls.values()} - {tokenizer.unk_id}
    texts = [f"a{token}b {token}" for token in tokenizer.controls]
    assert silent.isdisjoint(i for ids in tokenizer.encode_batch(texts) for i in ids)


@every
def test_steps_end_where_the_library_does(name: str, folders: Path) -> None:
    tokenizer = loaded(folders / name)
    splitter = Splitter(tokenizer)
    for text in (text for text in TEXTS if len(text) < 60):
        assert [i for split in splitter.split(text) for i in split.ids] == tokenizer.encode(text)
