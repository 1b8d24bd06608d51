"""Plain vocabularies: small ones, written here, give the ids of the pipeline that they were written from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import TEXTS
from tokenizers import Tokenizer as Raw
from tokenizers import decoders

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.data.tokenizers.training.wordpiece import WordPiece

MORE = ["", "  Hello,\tworld!\r\n", "日本語 Ünïcode 👩‍👩‍👦", "don't 12,345"]


def vocabulary(raw: Raw) -> list[str]:
    return sorted(raw.get_vocab(), key=raw.get_vocab().__getitem__)


def put(folder: Path, files: Mapping[str, Any]) -> Path:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def bert(lowercase: bool = True) -> Tokenizer:
    names = {"pad": "[PAD]", "unk": "[UNK]", "bos": "[CLS]", "eos": "[SEP]", "mask": "[MASK]"}
    return train(WordPiece(vocab_size=140, lowercase=lowercase, **names), [*TEXTS, "Cats And Mats"])


def gpt2(end: str = "<|endoftext|>", spec: TokenizerSpec | None = None) -> Tokenizer:
    return train(spec or BPE(vocab_size=320, pad=None, unk=None, bos=None, eos=end), TEXTS)


def merges_of(tokenizer: Tokenizer) -> str:
    merges = json.loads(tokenizer.raw.to_str())["model"]["merges"]
    return "\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n"


# -- BERT -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("configured", [True, False])
def test_vocab_txt_is_read_as_wordpiece(lowercase: bool, configured: bool, tmp_path: Path) -> None:
    tokenizer = bert(lowercase)
    files: dict[str, Any] = {"vocab.txt": "\n".join(vocabulary(tokenizer.raw)) + "\n"}
    if configured:
        files["tokenizer_config.json"] = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    put(tmp_path, files)
    for path in (tmp_path, tmp_path / "vocab.txt"):
        again = Tokenizer.load(path)
        assert again.encode_batch(TEXTS + MORE) == tokenizer.encode_batch(TEXTS + MORE)
        assert (again.pad_id, again.unk_id, again.cls_id, again.sep_id, again.mask_id) == (0, 1, 2, 3, 4)
        assert (again.bos_id, again.eos_id) == (2, 3)
        assert again.with_template(["the cats"], ["a mat"])[0].types == [0] * 4 + [1] * 3


def test_flags_of_bert_reach_the_normalizer(tmp_path: Path) -> None:
    files = {"vocab.txt": "\n".join(vocabulary(bert().raw))}
    put(tmp_path, {**files, "tokenizer_config.json": {"strip_accents": False, "tokenize_chinese_chars": False}})
    normalizer = Tokenizer.load(tmp_path).raw.normalizer
    assert (normalizer.strip_accents, normalizer.handle_chinese_chars, normalizer.lowercase) == (False, False, True)


def test_line_ends_of_windows_are_no_part_of_pieces(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n")
    assert Tokenizer.load(tmp_path).encode("a b") == [4, 1]


# -- BPE ------------------------------------------------------------------------------------------------------------


def test_vocab_json_and_merges_are_read_as_bpe(tmp_path: Path) -> None:
    tokenizer = gpt2()
    put(tmp_path, {"vocab.json": tokenizer.raw.get_vocab(), "merges.txt": merges_of(tokenizer)})
    for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        again = Tokenizer.load(path)
        assert again.encode_batch(TEXTS + MORE) == tokenizer.encode_batch(TEXTS + MORE)
        assert again.roles == {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}  # by its usual name


def test_openais_file_names_are_known(tmp_path: Path) -> None:
    tokenizer = gpt2()
    put(tmp_path, {"encoder.json": tokenizer.raw.get_vocab(), "vocab.bpe": merges_of(tokenizer)})
    assert Tokenizer.load(tmp_path).encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert Tokenizer.load(tmp_path / "vocab.bpe").encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


def test_roberta_has_two_ends_between_a_pair(tmp_path: Path) -> None:
    tokenizer = gpt2(spec=BPE(vocab_size=320, mask="<mask>"))
    config = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True}
    files = {"vocab.json": tokenizer.raw.get_vocab(), "merges.txt": merges_of(tokenizer)}
    again = Tokenizer.load(put(tmp_path, {**files, "tokenizer_config.json": config}))
    assert again.encode("the cats") == tokenizer.encode(" the cats")
    assert again.with_template(["the"], ["cats"])[0].ids == [
        *[again.bos_id, *again.encode("the"), again.eos_id],
        *[again.eos_id, *again.encode("cats"), again.eos_id],
    ]
    assert again.encode("the <mask>", control=True) == [*again.encode("the"), again.mask_id]  # which takes the space
    assert again.cls_id == again.bos_id == 2


def test_gpt2_with_flags(tmp_path: Path) -> None:
    tokenizer = gpt2()
    config = {"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": True, "pad_token": "<pad>"}
    files = {"vocab.json": tokenizer.raw.get_vocab(), "merges.txt": merges_of(tokenizer)}
    again = Tokenizer.load(put(tmp_path, {**files, "tokenizer_config.json": config}))
    assert again.with_template(["the"])[0].ids == [again.bos_id, *tokenizer.encode("the")]
    assert again.pad_id == tokenizer.vocab_size  # named by the configuration, missing in the vocabulary: added
    assert again.decode([again.eos_id, *tokenizer.encode("the")]) == "the"  # eos and unk at once, but silent


def test_qwen2_cuts_digits_and_composes(tmp_path: Path) -> None:
    tokenizer = gpt2()
    files = {"vocab.json": tokenizer.raw.get_vocab(), "merges.txt": merges_of(tokenizer)}
    again = Tokenizer.load(put(tmp_path, {**files, "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}}))
    words = [word for word, _ in again.raw.pre_tokenizer.pre_tokenize_str("a 12\n\nb")]
    assert words == ["a", "Ġ", "1", "2", "ĊĊ", "b"]
    assert again.encode("e\u0301") == again.encode("\u00e9")


def clip(tmp_path: Path) -> Tokenizer:
    letters = list("abcdehilnorstuwx,")
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "ca", "cat", "cats</w>"]
    vocab = {piece: i for i, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    merges = "#version: 0.2\nt h\nth e</w>\nc a\nca t\ncat s</w>\n"
    return Tokenizer.load(put(tmp_path, {"vocab.json": vocab, "merges.txt": merges}))


def test_clip_is_known_by_its_word_ends(tmp_path: Path) -> None:
    tokenizer = clip(tmp_path)
    ids = tokenizer.with_template(["The  CATS"])[0].ids
    assert tokenizer.tokens(ids) == ["<|startoftext|>", "the</w>", "cats</w>", "<|endoftext|>"]
    assert tokenizer.decode(ids) == "the cats" and tokenizer.decode([]) == ""
    assert tokenizer.unk_id == tokenizer.eos_id == tokenizer.pad_id == tokenizer.vocab_size - 1
    raw = Raw.from_str(tokenizer.to_json())  # as the Hub's own file has it: it leaves the word ends in
    raw.decoder = decoders.ByteLevel()
    put(tmp_path, {"tokenizer.json": raw.to_str(), "tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer"}})
    assert Tokenizer.load(tmp_path).decode(ids) == "the cats"


# -- what is wrong ----------------------------------------------------------------------------------------------------

MERGES, VOCAB = "#version: 0.2\na b\n", {"a": 0, "b": 1, "ab": 2}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"vocab.txt": "[UNK]\na\nb\na\n"}, r"line 4 repeats 'a' of line 2"),
        ({"vocab.txt": ""}, "it is empty"),
        ({"vocab.txt": "a\nb\n"}, r"lacks the unknown token '\[UNK\]'"),
        (
            {"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"}},
            "has no cls token",
        ),
        ({"vocab.json": VOCAB}, r"needs a merges.txt beside it"),
        ({"vocab.json": VOCAB, "merges.txt": "#version: 0.2\na b c\n"}, "line 2 of merges.txt should be two pieces"),
        (
            {"vocab.json": VOCAB, "merges.txt": MERGES + "b x\n"},
            r"line 3 of merges.txt merges 'b' and 'x', but the vocabulary has no 'x'",
        ),
        ({"vocab.json": VOCAB, "merges.txt": "b a\n"}, "the vocabulary has no 'ba'"),
        ({"vocab.json": {"a": 0, "b": 0}, "merges.txt": ""}, "gives the same id to several pieces"),
        (
            {"vocab.json": {"a": "0"}, "merges.txt": ""},
            "not an object from pieces to ids: a should be a whole number, not '0'",
        ),
        ({"vocab.json": {"a": 2**32}, "merges.txt": ""}, "a should be less than 4294967296, not 4294967296"),
        ({"vocab.json": {"a": None}, "merges.txt": ""}, "a should be a whole number, not None"),
        ({"vocab.json": {"a": -1}, "merges.txt": ""}, "a should be greater than or equal to 0, not -1"),
        ({"vocab.json": [["a", 0]], "merges.txt": ""}, "it should be an object"),
        ({"vocab.json": "[1", "merges.txt": ""}, "not valid JSON"),
        (
            {"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": {"tokenizer_class": "BartTokenizers"}},
            "mean 'BartTokenizer'",
        ),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": "{"}, r"tokenizer_config.json' is not valid JSON"),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": '{"a": NaN}'}, "a number that JSON does not have"),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": '{"a": "\\ud800"}'}, "half of a character"),
        (
            {"vocab.txt": "[UNK]\na\n", "added_tokens.json": {"x": 7}},
            "'x' has the id 7 in its configuration, but 2 in its vocabulary",
        ),
        ({"vocab.txt": "[UNK]\na\n", "tokenizer_config.json": {"pad_token": 5}}, "pad_token must be a token's text"),
        ({"tokenizer.bin": "x"}, "there is no tokenizer at"),
        ({"a.model": "x", "b.model": "x"}, r"several SentencePiece models \(a.model, b.model\)"),
    ],
)
def test_files_that_cannot_be_used(files: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says) as error:
        Tokenizer.load(put(tmp_path, files))
    assert "\n" not in str(error.value)
