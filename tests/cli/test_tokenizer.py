"""`qkv tokenizer`, alone: the main command turns the ValueErrors seen here into a sentence and exit status 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from qkv.cli.tokenizer import app

TEXTBOOK = "cats\nmats\nmate\nate\n"
CHARACTERS = ["--no-byte-level", "--no-prefix-space", "--min-frequency", "1"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXTBOOK, encoding="utf-8")
    return path


def qkv_tokenizer(*arguments: Any) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


def said(*arguments: Any) -> str:
    result = qkv_tokenizer(*arguments)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*arguments: Any) -> str:
    result = qkv_tokenizer(*arguments)
    assert isinstance(result.exception, ValueError | OSError)
    return str(result.exception)


def test_trace_of_the_textbook_corpus(corpus: Path) -> None:
    lines = said("train", corpus, *CHARACTERS, "--trace").splitlines()
    assert lines[0].split() == ["merge", "pair", "token", "count", "symbols", "left", "corpus"]
    assert lines[1].split() == [
        *["1", "a", "+", "t", "at", "4", "11"],
        *["c", "at", "s", "|", "m", "at", "s", "|", "m", "at", "e", "|", "at", "e"],
    ]
    assert lines[2].split()[:7] == ["2", "m", "+", "at", "mat", "2", "9"]
    assert lines[-2].split()[-7:] == ["cats", "|", "mats", "|", "mate", "|", "ate"]
    assert lines[-1] == "17 tokens, fewer than the limit of 8,000: the text yields no more; not saved"


def test_trace_of_wordpiece_has_scores(corpus: Path) -> None:
    lines = said("train", corpus, "--kind", "wordpiece", "--min-frequency", 1, "--trace").splitlines()
    assert lines[0].split() == ["merge", "pair", "token", "count", "score", "symbols", "left", "corpus"]
    assert lines[1].split()[:7] == ["1", "m", "+", "##a", "ma", "2", "0.333333"]


def test_trace_as_json(corpus: Path) -> None:
    result = json.loads(said("train", corpus, *CHARACTERS, "--trace", "--json"))
    assert (result["path"], result["vocab_size"], len(result["trace"])) == (None, 17, 7)
    first = {"left": "a", "right": "t", "token": "at", "count": 4, "score": 4, "symbols": 11}
    assert first.items() <= result["trace"][0].items()


def test_train_saves_and_show_reads(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    assert "written to" in said("train", corpus, *CHARACTERS, "--out", out, "--special", "<de>")
    assert [path.name for path in out.iterdir()] == ["tokenizer.json"]
    text = said("show", out, "mats")
    assert text.split("\n")[:6] == [
        "mats",
        "  m a t s",
        "  m at s    a + t, merge 1",
        "  mat s    m + at, merge 2",
        "  mats    mat + s, merge 6",
        "  = mats (16)",
    ]
    assert "= <de> (4)" in said("show", out / "tokenizer.json", "<de>")


def test_show_wordpiece_and_unigram(corpus: Path, tmp_path: Path) -> None:
    said("train", corpus, "--kind", "wordpiece", "--out", tmp_path / "w")
    assert "  ma    after mats, mat\n  ##ts\n  = ma (" in said("show", tmp_path / "w", "mats")
    said("train", corpus, "--kind", "unigram", "--out", tmp_path / "u")
    (split,) = json.loads(said("show", tmp_path / "u", "mats", "--json"))["mats"]
    best, *others = split["steps"]
    assert "".join(best["symbols"]) == "▁mats" and others
    assert all(best["log_prob"] >= other["log_prob"] for other in others)
    assert split["pieces"] == best["symbols"]


def test_info(corpus: Path, tmp_path: Path) -> None:
    more = [option for i in range(14) for option in ("--special", f"<m{i}>")]
    said("train", corpus, "--out", tmp_path / "t", "--dropout", 0.1, "--mask", *more)
    lines = said("info", tmp_path / "t").splitlines()
    assert lines[0].startswith("bpe, ") and lines[1:3] == ["  pad   <pad> (0)", "  unk   <unk> (1)"]
    assert lines[-2].endswith("<m11> and 2 more") and lines[-1] == "  dropout 0.1 in training"
    account = json.loads(said("info", tmp_path / "t", "--json"))
    assert account["roles"]["eos"] == {"token": "</s>", "id": 3} and len(account["markers"]) == 14
    assert (account["kind"], account["dropout"], account["control"]) == ("bpe", 0.1, [])


def test_convert_writes_what_the_hub_wants(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "mat", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    assert "wordpiece-6 written to" in said("convert", tmp_path / "vocab.txt", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    assert "= mat (4)  ##s (5)" in said("show", tmp_path / "out", "mats")
    assert "--overwrite" in refused("convert", tmp_path, tmp_path / "out")
    said("convert", tmp_path, tmp_path / "out", "--overwrite")


def test_a_tokenizer_replaces_its_directory_as_a_whole_and_leaves_other_files(corpus: Path, tmp_path: Path) -> None:
    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "notes.txt").write_text("mine")
    for out in (alone, mixed):
        said("train", corpus, "--kind", "char", "--out", out)
        (out / "chat_template.jinja").write_text("{% for m in messages %}{{ m }}{% endfor %}")
        before = out.stat().st_ino
        assert f"{out / 'tokenizer.json'}" in said("train", corpus, "--kind", "byte", "--out", out, "--overwrite")
        assert (out.stat().st_ino == before) == (out == mixed)
    assert [path.name for path in alone.iterdir()] == ["tokenizer.json"]
    assert {path.name for path in mixed.iterdir()} == {"tokenizer.json", "notes.txt"}


def test_a_converted_tokenizer_asks_before_it_replaces_its_settings(corpus: Path, tmp_path: Path) -> None:
    said("train", corpus, "--kind", "char", "--out", tmp_path / "t")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tokenizer_config.json").write_text("{}")
    assert "tokenizer_config.json already exists" in refused("convert", tmp_path / "t", tmp_path / "out")
    said("convert", tmp_path / "t", tmp_path / "out", "--overwrite")
    assert "tokenizer_class" in (tmp_path / "out" / "tokenizer_config.json").read_text()


def test_what_is_refused(corpus: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "t"]
    assert "give the directory for the tokenizer with --out DIR" in refused("train", corpus)
    assert "did you mean 'unigram'" in refused("train", corpus, "--kind", "unigrams", *out)
    assert "set it to 260 or more" in refused("train", corpus, "--vocab-size", 100, *out)
    assert "vocab_size: no such field" in refused("train", corpus, "--kind", "byte", "--vocab-size", 300, *out)
    assert "only bpe and wordpiece" in refused("train", corpus, "--kind", "unigram", "--trace", *out)
    assert "there is no file" in refused("train", tmp_path / "none.txt", *out)
    assert not (tmp_path / "t").exists()
    said("train", corpus, "--kind", "char", *out)
    assert "--overwrite" in refused("train", corpus, "--kind", "char", *out)
    said("train", corpus, "--kind", "char", *out, "--overwrite")
    assert "there is no tokenizer" in refused("show", tmp_path / "none", "word")
    assert "dropout: no such field" in refused(
        "train", corpus, "--kind", "char", "--dropout", 0.1, "--out", tmp_path / "u"
    )
    (tmp_path / "t" / "tokenizer.json").write_bytes(b"\x80\x04}")
    assert "never a pickle" in refused("show", tmp_path / "t", "word")
