"""The kind `file`: a recipe's tokenizer that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import TEXTS, made

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec

GPT2 = BPE(vocab_size=300, pad=None, unk=None, bos=None, eos="<|endoftext|>")


def from_file(path: Path, **fields: Any) -> TokenizerSpec:
    return TokenizerSpec.from_dict({"kind": "file", "path": str(path), **fields})


def test_it_is_the_tokenizer_of_the_file(tmp_path: Path) -> None:
    made("bpe").save(tmp_path)
    tokenizer = train(from_file(tmp_path), [])
    assert tokenizer.to_json() == made("bpe").to_json()
    assert from_file(tmp_path).vocab_size == tokenizer.vocab_size  # type: ignore[attr-defined]


def test_roles_and_markers_can_be_added(tmp_path: Path) -> None:
    plain = train(GPT2, TEXTS)
    plain.save(tmp_path)
    spec = from_file(tmp_path, pad="<|padding|>", special=("<de>",))
    tokenizer = train(spec, [])
    assert (tokenizer.pad_id, tokenizer.id("<de>")) == (plain.vocab_size, plain.vocab_size + 1)
    assert spec.vocab_size == tokenizer.vocab_size == plain.vocab_size + 2  # type: ignore[attr-defined]
    assert tokenizer.eos_id == tokenizer.bos_id == plain.eos_id  # as before
    assert tokenizer.encode("the <de>cat") == [*plain.encode("the "), tokenizer.id("<de>"), *plain.encode("cat")]
    assert tokenizer.pad_id not in tokenizer.encode("<|padding|>")
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.roles == tokenizer.roles == {"pad": "<|padding|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"}


def test_another_token_can_take_a_role(tmp_path: Path) -> None:
    made("bpe").save(tmp_path)
    assert train(from_file(tmp_path, pad="</s>"), []).pad_id == made("bpe").eos_id


def test_dropout_is_the_files_unless_it_is_said(tmp_path: Path) -> None:
    train(BPE(vocab_size=300, dropout=0.2), TEXTS).save(tmp_path)
    assert train(from_file(tmp_path), []).dropout == 0.2
    assert train(from_file(tmp_path, dropout=0.1), []).dropout == 0.1
    assert train(from_file(tmp_path, dropout=0.0), []).dropout == 0
    made("wordpiece").save(tmp_path)
    with pytest.raises(ValueError, match=r"dropout is 0.1, but only bpe and unigram"):
        train(from_file(tmp_path, dropout=0.1), [])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lowercase": True}, "has its own normalization"),
        ({"vocab_size": 300}, "vocab_size: no such field"),
        ({"special": ["a b"]}, "not 'a b'"),
        ({"dropout": 1}, "less than 1"),
    ],
)
def test_specs_that_make_no_sense(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        from_file(tmp_path, **fields)


def test_nothing_there_and_nothing_to_trace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no tokenizer at"):
        train(from_file(tmp_path / "none"), [])
    made("bpe").save(tmp_path)
    with pytest.raises(ValueError, match="no merges to trace"):
        train(from_file(tmp_path), [], trace=print)
