"""Tokenizers of every kind: what they keep, what text cannot do to them, what a file cannot do to us."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import LOSSLESS, NEVER_UNKNOWN, SPECS, TEXTS, anything, hostile, made
from run_untrained import words
from tokenizers import Tokenizer as Raw
from tokenizers import decoders, models, normalizers, pre_tokenizers

from qkv.core import atomic
from qkv.data.tokenizer_training import train_from_files
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.tokenizer_json import ROLES
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.pair_merges import MergeStep
from qkv.data.tokenizers.training.unigram import Unigram
from qkv.data.tokenizers.training.wordpiece import WordPiece
from qkv.data.tokenizers.training.words_chars_bytes import Word

every = pytest.mark.parametrize("name", SPECS)


# -- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSLESS)
@given(text=st.one_of(anything, hostile))
def test_texts_come_back_unchanged(name: str, text: str) -> None:
    tokenizer = made(name)
    assert tokenizer.decode(tokenizer.encode(text, bos=True, eos=True)) == text


@pytest.mark.parametrize("name", ["bpe-fallback", "unigram-fallback"])
@given(text=st.one_of(anything, hostile))
def test_metaspace_keeps_all_but_one_leading_space_and_its_own_sign(name: str, text: str) -> None:
    tokenizer = made(name)
    back = tokenizer.decode(tokenizer.encode(text))
    plain = text.replace("▁", " ")
    assert back in (plain, plain.removeprefix(" "))


@pytest.mark.parametrize("name", NEVER_UNKNOWN)
@given(text=anything)
def test_nothing_is_unknown(name: str, text: str) -> None:
    tokenizer = made(name)
    assert tokenizer.unk_id not in tokenizer.encode(text)


@every
def test_training_text_comes_back(name: str) -> None:
    tokenizer = made(name)
    for text in TEXTS[:3]:
        spaced = text if name not in ("wordpiece", "word-punctuation") else " ".join(spaced_out(text))
        back = tokenizer.decode(tokenizer.encode(text))
        assert back.replace(" ", "") == spaced.replace(" ", "")
        assert name in ("wordpiece", "word-punctuation") or back == text


def spaced_out(text: str) -> list[str]:
    return [word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)]


@every
def test_batches_are_their_texts(name: str) -> None:
    tokenizer = made(name)
    rows = tokenizer.encode_batch(TEXTS, bos=True, eos=True)
    assert rows == [[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id] for text in TEXTS]
    assert tokenizer.decode_batch(rows) == [tokenizer.decode(row) for row in rows]
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == "" and tokenizer.encode_batch([]) == []


# -- special tokens -------------------------------------------------------------------------------------------------


@every
@given(text=st.one_of(hostile, st.text("<s/>pad", max_size=20)))
def test_no_text_becomes_a_control_token(name: str, text: str) -> None:
    tokenizer = made(name)
    injected = {*tokenizer.controls.values()} - {tokenizer.unk_id}
    assert injected.isdisjoint(tokenizer.encode(text))
    assert injected.isdisjoint(tokenizer.encode_batch([f"x{text}y", text.lower()])[0])


@every
def test_control_tokens_are_read_when_asked_for(name: str) -> None:
    tokenizer = made(name)
    assert tokenizer.mask_id in tokenizer.encode("the <mask> sat", control=True)
    assert tokenizer.mask_id not in tokenizer.encode("the <mask> sat")


@every
def test_markers_are_single_ids_both_ways(name: str) -> None:
    tokenizer = made(name)
    marker = tokenizer.id("<de>")
    ids = tokenizer.encode("<de> the cat")
    assert ids[0] == marker and ids.count(marker) == 1
    assert "<de>" in tokenizer.decode(ids) and tokenizer.tokens(ids)[0] == "<de>"
    assert tokenizer.decode(ids).replace("▁", " ") == "<de> the cat"


def test_skip_special_keeps_unknown() -> None:
    tokenizer = train(Word(), ["a b"])
    ids = tokenizer.encode("a zebra b", bos=True, eos=True)
    assert tokenizer.decode(ids) == "a <unk> b"
    assert tokenizer.decode(ids, skip_special=False) == "<s> a <unk> b </s>"


def test_tokens_that_are_not_declared_have_no_id() -> None:
    tokenizer = train(BPE(vocab_size=300, pad=None, unk=None, bos=None, eos="<|endoftext|>"), TEXTS)
    assert tokenizer.pad_id is None and tokenizer.unk_id is None and tokenizer.mask_id is None
    assert tokenizer.bos_id == tokenizer.eos_id == 0  # GPT-2's token is both
    with pytest.raises(ValueError, match="no token '<pad>'"):
        tokenizer.id("<pad>")
    none = train(BPE(vocab_size=300, bos=None), TEXTS)
    with pytest.raises(ValueError, match="no beginning-of-sequence token"):
        none.encode("a", bos=True)


# -- files ----------------------------------------------------------------------------------------------------------


@every
def test_saved_and_loaded_is_the_same(name: str, tmp_path: Path) -> None:
    tokenizer = made(name)
    path = tokenizer.save(tmp_path / "run")
    again = Tokenizer.load(tmp_path / "run")
    assert path == tmp_path / "run" / "tokenizer.json" and [*path.parent.iterdir()] == [path]
    assert again.to_json() == tokenizer.to_json() and again.name == tokenizer.name
    assert again.kind == SPECS[name].kind and again.vocab_size == tokenizer.vocab_size == 1 + max(
        vocabulary(again).values()
    )
    assert [getattr(again, f"{role}_id") for role in ROLES] == [getattr(tokenizer, f"{role}_id") for role in ROLES]
    assert (again.markers, again.controls) == (tokenizer.markers, tokenizer.controls)
    assert pickle.loads(pickle.dumps(again)).encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


@every
def test_the_library_alone_reads_the_file(name: str, tmp_path: Path) -> None:
    raw = Raw.from_file(str(made(name).save(tmp_path)))
    for text in TEXTS[:3]:
        assert raw.encode(text, add_special_tokens=False).ids == made(name).encode(text)


def vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    return tokenizer.raw.get_vocab(with_added_tokens=True)


# -- training -------------------------------------------------------------------------------------------------------


def test_training_is_the_same_in_another_process() -> None:
    """Sets and hash maps, Python's and the library's, have another order there."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from made_tokenizers import SPECS, TEXTS, train\n"
        "print(*(train(spec, TEXTS).to_json() for spec in SPECS.values()))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parents[2] / "helpers")]
    there = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert there.stdout.split() == " ".join(train(spec, TEXTS).to_json() for spec in SPECS.values()).split()


@every
def test_training_again_is_the_same(name: str) -> None:
    assert all(train(SPECS[name], iter(TEXTS)).to_json() == train(SPECS[name], TEXTS).to_json() for _ in range(5))


def test_an_error_in_the_texts_is_not_swallowed() -> None:
    def broken() -> Iterator[str]:
        yield "a text"
        raise OSError("the disk is gone")

    for spec in SPECS.values():
        if spec.kind != "byte":
            with pytest.raises(OSError, match="the disk is gone"):
                train(spec, broken())


def test_compressed_files_train_the_same_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:6]))
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(TEXTS[6:]))
    spec = SPECS["bpe-characters"]
    assert train_from_files(spec, [tmp_path / "a.txt", tmp_path / "b.txt.gz"]).to_json() == train(spec, TEXTS).to_json()
    (tmp_path / "bad.txt").write_bytes(b"fine\nnot \xff\n")
    with pytest.raises(ValueError, match=r"bad.txt', line 2, is not valid UTF-8"):
        train_from_files(spec, [tmp_path / "bad.txt"])


def test_progress_is_shown_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    train("char", TEXTS, progress=True)
    assert capsys.readouterr().out == ""


def test_trace_is_the_table() -> None:
    for spec in (BPE(vocab_size=80, byte_level=False), WordPiece(vocab_size=80)):
        steps: list[MergeStep] = []
        tokenizer = train(spec, iter(TEXTS), trace=steps.append)
        learned = [tokenizer.id(step.token) for step in steps]
        assert learned == list(range(tokenizer.vocab_size - len(steps), tokenizer.vocab_size))
    with pytest.raises(ValueError, match="not unigram"):
        train(Unigram(), TEXTS, trace=steps.append)


# -- specs ----------------------------------------------------------------------------------------------------------


# -- ids and texts that are wrong, tokens to look at --------------------------------------------------------------------


def test_wrong_ids_and_texts() -> None:
    tokenizer = made("bpe")
    for ids in ([-100], [5, tokenizer.vocab_size]):
        with pytest.raises(ValueError, match="there is no token"):
            tokenizer.decode(ids)
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("a\ud800")
    with pytest.raises(ValueError, match="not NoneType"):
        tokenizer.encode_batch(["a", None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="one string"):
        tokenizer.encode_batch("a text")


def test_ids_may_be_a_tensor() -> None:
    tokenizer = made("bpe")
    ids = tokenizer.encode(TEXTS[0])
    assert tokenizer.decode(torch.tensor(ids)) == TEXTS[0]
    assert tokenizer.tokens(torch.tensor(ids)) == tokenizer.tokens(ids)


def test_tokens_are_readable() -> None:
    tokenizer = made("byte")
    assert tokenizer.tokens(tokenizer.encode("a b\n\tß", eos=True)) == [*"a▁b↵⇥", "<0xC3>", "<0x9F>", "</s>"]
    assert made("bpe").tokens(made("bpe").encode(" the")) == ["▁the"]
    assert made("char").tokens(made("char").encode("t h")) == ["t", "▁", "h"]


# -- real files -----------------------------------------------------------------------------------------------------

REAL = Path(__file__).parents[4] / "shared" / "data" / "tokenizers"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the published vocabularies are not in {REAL}")


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


@real
def test_gpt2_has_its_published_ids() -> None:
    vocab = json.loads("".join(lines(REAL / "gpt2" / "encoder.json.gz")))
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in lines(REAL / "gpt2" / "vocab.bpe.gz")[1:])]
    raw = Raw(models.BPE(vocab, merges))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<|endoftext|>"])
    tokenizer = Tokenizer.from_json(raw.to_str())
    assert (tokenizer.name, tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == ("bpe-50257", 50256, 50256, None)
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert 50256 not in tokenizer.encode("a<|endoftext|>b")


@real
def test_bert_has_its_published_pieces() -> None:
    vocab = {piece: i for i, piece in enumerate(lines(REAL / "bert" / "uncased_en_vocab.txt.gz"))}
    raw = Raw(models.WordPiece(vocab, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece()
    raw.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer = Tokenizer.from_json(raw.to_str())
    ids = tokenizer.encode("Unaffable cats", bos=True, eos=True)
    assert tokenizer.tokens(ids) == ["[CLS]", "una", "##ffa", "##ble", "cats", "[SEP]"]
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 100, 103)
    assert tokenizer.mask_id in tokenizer.encode("a [MASK] b", control=True)
    assert tokenizer.mask_id not in tokenizer.encode("a [MASK] b")


@every
def test_a_notebook_shows_kind_size_and_special_tokens_as_text(name: str) -> None:
    tokenizer = made(name)
    page = tokenizer._repr_html_()
    assert f">{tokenizer.kind}<" in page and f">{tokenizer.vocab_size:,}<" in page
    assert all(f"{token}".replace("<", "&lt;").replace(">", "&gt;") in page for token in tokenizer.controls)


def test_on_a_full_disk_a_tokenizer_keeps_its_chat_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words("{{ messages[0].content }}").save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert "chat_template.jinja" in before

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="space"):
        patched.setattr(atomic, "sync_file", full)
        words().save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    words().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
