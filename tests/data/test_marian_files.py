"""Marian: a SentencePiece model for each side, one vocabulary for both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.data import sentencepiece_file
from qkv.data.sentencepiece_file import Kind
from qkv.data.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "sentencepiece"  # by make_tokenizer_golden.py


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    names: list[str] = ["</s>", "<unk>"]
    for side, model in (("source", "t5"), ("target", "unigram")):
        data = (FOLDER / f"{model}.model").read_bytes()
        (tmp_path / f"{side}.spm").write_bytes(data)
        names += [piece.text for piece in sentencepiece_file.parse(data).pieces if piece.kind is Kind.NORMAL]
    names = [*dict.fromkeys(names), ">>fra<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    return tmp_path


def test_marian_has_a_model_for_each_side_and_one_vocabulary(marian: Path) -> None:
    for file, model in (("source.spm", "t5"), ("target.spm", "unigram")):
        tokenizer, alone = Tokenizer.load(marian / file), Tokenizer.load(FOLDER / f"{model}.model")
        ids = tokenizer.encode("the cats ate 12 mats")
        assert tokenizer.tokens(ids) == alone.tokens(alone.encode("the cats ate 12 mats"))
        assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, tokenizer.vocab_size - 1)
        assert tokenizer.with_template(["the cats"])[0].ids == [*tokenizer.encode("the cats"), 0]
    source = Tokenizer.load(marian)
    assert source.encode(">>fra<< the cats") == [source.id(">>fra<<"), *source.encode("the cats")]


def test_marian_without_its_vocabulary(marian: Path) -> None:
    (marian / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"needs the vocab.json"):
        Tokenizer.load(marian)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"<unk>": None}, "have an '<unk>'"),
        ({"</s>": 10_000}, "from 0 without a gap"),
    ],
)
def test_vocabularies_that_cannot_be_used(change: dict[str, int | None], says: str, marian: Path) -> None:
    vocabulary = json.loads((marian / "vocab.json").read_text()) | change
    (marian / "vocab.json").write_text(json.dumps({name: i for name, i in vocabulary.items() if i is not None}))
    with pytest.raises(ValueError, match=says):
        Tokenizer.load(marian)


def test_other_models_than_unigram(marian: Path) -> None:
    (marian / "source.spm").write_bytes((FOLDER / "bpe.model").read_bytes())
    with pytest.raises(ValueError, match="it is a bpe model"):
        Tokenizer.load(marian)
