"""SentencePiece models: small ones give the ids and texts of that library."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from qkv.data.tokenizers.explain_split import Splitter
from qkv.data.tokenizers.sentencepiece import model_file
from qkv.data.tokenizers.sentencepiece.model_file import Piece, PieceKind, SentencePiece
from qkv.data.tokenizers.sentencepiece.pipeline import merges_of, pipeline
from qkv.data.tokenizers.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "models"  # by make_tokenizer_golden.py
GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text())
NAMES = [name for name in GOLDEN if name != "texts"]

every = pytest.mark.parametrize("name", NAMES)


@every
def test_ids_and_texts_match_the_library(name: str) -> None:
    tokenizer = Tokenizer.load(FOLDER / f"{name}.model")
    for text, ids, decoded in zip(GOLDEN["texts"], GOLDEN[name]["ids"], GOLDEN[name]["decoded"], strict=True):
        assert tokenizer.encode(text) == ids, text
        if tokenizer.unk_id not in ids:
            assert tokenizer.decode(ids) == decoded


@every
def test_saved_and_loaded_is_the_same(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(FOLDER / f"{name}.model")
    again = Tokenizer.load(tokenizer.save(tmp_path))
    assert again.to_json() == tokenizer.to_json() and again.roles == tokenizer.roles
    assert again.encode_batch(GOLDEN["texts"]) == GOLDEN[name]["ids"]


@every
def test_steps_end_where_the_library_does(name: str) -> None:
    splitter = Splitter(Tokenizer.load(FOLDER / f"{name}.model"))
    for text, ids in zip(GOLDEN["texts"], GOLDEN[name]["ids"], strict=True):
        if len(text) < 60:
            assert [i for split in splitter.split(text) for i in split.ids] == ids


def test_roles_are_what_the_trainer_wrote_down() -> None:
    roles = {name: Tokenizer.load(FOLDER / f"{name}.model").roles for name in ("unigram", "t5")}
    assert roles["unigram"] == {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    assert roles["t5"] == {"pad": "<pad>", "unk": "<unk>", "eos": "</s>"}
    assert Tokenizer.load(FOLDER / "t5.model").pad_id == 0
    assert Tokenizer.load(FOLDER / "unigram.model").markers == ("<sep>",)


def test_a_family_adds_its_tokens_and_template(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes((FOLDER / "t5.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5TokenizerFast", "extra_ids": 3}')
    tokenizer = Tokenizer.load(tmp_path)
    plain = Tokenizer.load(FOLDER / "t5.model").vocab_size
    assert [tokenizer.id(f"<extra_id_{i}>") for i in range(3)] == [plain + 2, plain + 1, plain]
    assert tokenizer.with_template(["the cat"])[0].ids == [*tokenizer.encode("the cat"), tokenizer.eos_id]
    assert tokenizer.bos_id is None


def test_merges_are_ranked_by_the_score_of_what_they_make() -> None:
    kinds = {"<unk>": PieceKind.UNKNOWN, "abc": PieceKind.CONTROL}
    pieces = [("<unk>", 0.0), ("abc", 0.0), ("abab", -1.0), ("ab", -0.5), ("aba", -2.0), ("a", -9.0), ("b", -9.0)]
    merges = merges_of([Piece(text, score, kinds.get(text, PieceKind.NORMAL)) for text, score in pieces])
    assert merges == [("a", "b"), ("ab", "ab"), ("aba", "b"), ("ab", "a")]


def test_text_written_apart_is_composed_where_the_model_composes() -> None:
    """Kana and Hangul as macOS writes file names: the library's own table lookup misses them."""
    pieces = (("<unk>", 0.0, 2), ("▁", -4.0, 1), ("が", -1.0, 1))
    plain = SentencePiece(tuple(Piece(text, score, PieceKind(kind)) for text, score, kind in pieces))
    apart = "か\u3099"
    assert "が" not in pipeline(plain).encode(apart).tokens  # no table: as it stands
    shared = Path(__file__).parents[5] / "shared/data/tokenizers/sentencepiece/sp_test_model.model"
    if not shared.is_file():
        pytest.skip(f"there is no table of NFKC at {shared}")
    charsmap = model_file.parse(shared.read_bytes()).precompiled_charsmap
    composing = SentencePiece(plain.pieces, precompiled_charsmap=charsmap)
    assert "が" in pipeline(composing).encode(apart).tokens


def test_marks_on_characters_that_the_table_changes_stay() -> None:
    """As SentencePiece itself has them; the library's own table lookup loses them."""
    model = Path(__file__).parents[5] / "shared/data/tokenizers/sentencepiece/sp_test_model.model"
    if not model.is_file():
        pytest.skip(f"there is no table of NFKC at {model}")
    sentencepiece = pytest.importorskip("sentencepiece", reason="the table is SentencePiece's")
    spaces = {"escape_whitespaces": False, "add_dummy_prefix": False, "remove_extra_whitespaces": True}
    theirs = sentencepiece.SentencePieceNormalizer(model_file=str(model), **spaces)
    ours = pipeline(model_file.parse(model.read_bytes())).normalizer
    bases = [*"aez①½Ａｶかſ²Ω가", "ｶﾞ", "\u1100"]
    for base in bases:
        for mark in ["\u0303", "\u0301", "\u0323", "\u3099", "\u200d", "\ufe0f", "\u20dd", "\u0340", "\u0323\u0303"]:
            text = f"a{base}{mark}b {base}{mark}"
            assert ours.normalize_str(text).removeprefix("▁").replace("▁", " ") == theirs.normalize(text), ascii(text)
    encoded = Tokenizer.load(model).raw.encode("x①\u0303y")
    assert encoded.offsets[-1][1] == 4 and encoded.offsets == sorted(encoded.offsets)


def test_a_mark_may_begin_a_text(tmp_path: Path) -> None:
    """By SentencePiece's default table, nmt_nfkc, which also turns tabs and line ends into spaces."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="the table is SentencePiece's")
    (tmp_path / "texts").write_text("the cat sat on the mat\na cat ate the hat\nmats and hats\n" * 9)
    settings = {"vocab_size": 30, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "texts"), model_prefix=str(tmp_path / "m"), normalization_rule_name="nmt_nfkc", **settings
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    ours = Tokenizer.load(tmp_path / "m.model")
    for length in (1, 2, 3):
        for characters in product("a\u0301\t\u200b \n\u200d\r한", repeat=length):
            text = "".join(characters)
            assert ours.encode(text) == theirs.encode(text), ascii(text)
