"""XLM-RoBERTa's, ALBERT's and `.tiktoken` files give the ids of `transformers` and tiktoken (families_golden.json)."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qkv.data.tokenizers.explain_split import Splitter
from qkv.data.tokenizers.tokenizer import Tokenizer

HERE = Path(__file__).parent
SHARED = Path(__file__).parents[5] / "shared" / "data" / "tokenizers"
GOLDEN: dict[str, Any] = json.loads((HERE / "families_golden.json").read_text())  # by make_tokenizer_golden.py
TEXTS: list[str] = GOLDEN["texts"]
CONFIGS: dict[str, dict[str, Any]] = {
    "xlm-roberta": {"tokenizer_class": "XLMRobertaTokenizer"},
    "albert": {"tokenizer_class": "AlbertTokenizer"},
    "albert-as-it-is": {"tokenizer_class": "AlbertTokenizerFast", "do_lower_case": False, "keep_accents": True},
    "tiktoken": {},
    "whisper": {},
}
PUBLISHED = ("xlm-roberta", "tiktoken", "whisper")
every = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in PUBLISHED and not SHARED.is_dir(), reason=f"there are no published tokenizers at {SHARED}"
            ),
        )
        for name in CONFIGS
    ],
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By name, once."""
    found: dict[str, Tokenizer] = {}

    def load(name: str) -> Tokenizer:
        if name not in found:
            found[name] = Tokenizer.load(folder_of(name, tmp_path_factory.mktemp("made")))
        return found[name]

    return load


def folder_of(name: str, folder: Path) -> Path:
    """A folder as the Hub has it; two names of one `.tiktoken` file."""
    if CONFIGS[name]:
        (folder / "tokenizer_config.json").write_text(json.dumps(CONFIGS[name]))
    if name == "xlm-roberta":
        shutil.copy(SHARED / "sentencepiece" / "sp_test_model.model", folder / "sentencepiece.bpe.model")
    elif name.startswith("albert"):
        shutil.copy(HERE.parent / "sentencepiece" / "models" / "albert.model", folder / "spiece.model")
    else:
        data = gzip.decompress((SHARED / "whisper" / "multilingual.tiktoken.gz").read_bytes())
        (folder / f"{'multilingual' if name == 'whisper' else 'any'}.tiktoken").write_bytes(data)
    return folder


@every
def test_ids_and_texts(name: str, loaded: Any) -> None:
    tokenizer, golden = loaded(name), GOLDEN[name]
    for text, ids in zip(TEXTS, golden["ids"], strict=True):
        assert tokenizer.encode(text, control=True) == ids, text
    assert tokenizer.decode_batch(golden["ids"], skip_special=False) == golden["decoded"]
    assert tokenizer.vocab_size == golden.get("size", 50257)


@pytest.mark.parametrize("name", ["albert", pytest.param("xlm-roberta", marks=every.args[1][0].marks)])
def test_roles_and_templates(name: str, loaded: Any) -> None:
    tokenizer, golden = loaded(name), GOLDEN[name]
    assert {role: tokenizer.id(token) for role, token in tokenizer.roles.items()} == golden["roles"]
    assert tokenizer.with_template(["the first"])[0].ids == golden["alone"]
    pair = tokenizer.with_template(["the first"], ["and the second"])[0]
    assert [pair.ids, pair.types] == golden["pair"]


@every
def test_saved_and_loaded_is_the_same(name: str, loaded: Any, tmp_path: Path) -> None:
    tokenizer = loaded(name)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.to_json() == tokenizer.to_json()
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


@every
def test_no_control_token_from_text(name: str, loaded: Any) -> None:
    tokenizer = loaded(name)
    silent = {*tokenizer.controls.values()} - {tokenizer.unk_id}
    texts = [f"a{token}b {token}" for token in tokenizer.controls]
    assert silent.isdisjoint(i for ids in tokenizer.encode_batch(texts) for i in ids)


@every
def test_steps_end_where_the_library_does(name: str, loaded: Any) -> None:
    tokenizer = loaded(name)
    splitter = Splitter(tokenizer)
    for text in (text for text in TEXTS if len(text) < 60):
        assert [i for split in splitter.split(text) for i in split.ids] == tokenizer.encode(text)
