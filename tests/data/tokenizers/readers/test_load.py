"""Loading tokenizers from files of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_tokenizers import made
from tokenizers import Tokenizer as Raw
from tokenizers import models, normalizers, pre_tokenizers
from word_tokenizers import folder, words

from qkv.data.tokenizers.tokenizer import Tokenizer


def test_files_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\x00")
    with pytest.raises(ValueError, match=r"not a known kind of tokenizer file: give a tokenizer.json, BERT's"):
        Tokenizer.load(tmp_path / "weights.bin")
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(ValueError, match="not valid UTF-8 at byte 6"):
        Tokenizer.load(tmp_path)


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


def test_a_file_of_ours_needs_no_configuration(tmp_path: Path) -> None:
    config = {"pad_token": "<s>", "bos_token": "<go>"}
    first = Tokenizer.load(folder(tmp_path, words("<s>", "<go>"), tokenizer_config=config))
    first.save(tmp_path)  # the tokenizer_config.json beside it is now an older one
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "b"}')
    with pytest.warns(UserWarning, match="pad_token 'b', which is no special token"):
        assert Tokenizer.load(tmp_path).roles == first.roles
