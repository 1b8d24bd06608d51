"""ESM's and MPNet's vocabularies, against the tokenizers of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.data.tokenizers.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="parity is with Hugging Face's transformers")
RESIDUES = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
WORDS = ["<s>", "<pad>", "</s>", "[UNK]", "the", "cat", "##s", "a", ",", "<mask>"]


def test_proteins_have_esms_ids(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(RESIDUES), encoding="utf-8")
    theirs = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    for text in ("MKTAYIAKQR", "M K T", "mktJJ A", "MKJJJT  X.-", "", "ÄM"):
        assert ours.with_template([text])[0].ids == theirs(text).input_ids, text
    assert ours.with_template(["MKT"], ["AA"])[0].ids == theirs("MKT", "AA").input_ids
    assert ours.encode("M<mask>K", control=True) == theirs("M<mask>K").input_ids[1:-1]


def test_words_have_mpnets_ids(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"}))
    theirs = transformers.MPNetTokenizer(vocab={word: i for i, word in enumerate(WORDS)})
    ours = Tokenizer.load(tmp_path)
    for text in ("The cats, a", "dog"):
        assert ours.with_template([text])[0].ids == theirs(text).input_ids
    assert ours.with_template(["the"], ["cats"])[0].ids == theirs("the", "cats").input_ids
