"""`qkv tokenizer`, alone: the main command turns the ValueErrors seen here into a sentence and exit status 2."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from qkv.cli.tokenizer import app
from qkv.data.tokenizers.tokenizer import train

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


def test_info_shows_roles_markers_and_dropout(corpus: Path, tmp_path: Path) -> None:
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


def test_compare_prints_figures_unknown_pieces_and_examples(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("dogs bark\n" * 3)
    said("train", other, "--kind", "char", "--out", tmp_path / "dogs")
    lines = said("compare", corpus, tmp_path / "dogs", "bpe", "byte", "--vocab-size", 300).splitlines()
    assert lines[:2] == [
        "4 lines, 4 words (4 distinct), 15 characters, 15 bytes",
        "trained on this file, so on other texts they need more tokens: bpe, byte",
    ]
    rows = {line[:22].strip(): line[22:].split() for line in lines[3:15]}
    assert rows[""] == ["dogs", "bpe", "byte"] and rows["tokens"] == ["15", "9", "15"]
    assert rows["unknown pieces"] == ["9", "0", "0"]
    assert "unknown to dogs: t (4)  m (2)  e (2)  c (1)" in lines[16]
    at = lines.index("  mats")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["dogs", "4", "<unk>", "a", "<unk>", "s"],
        ["bpe", "2", "mat", "s"],
        ["byte", "4", "m", "a", "t", "s"],
    ]
    result = json.loads(said("compare", corpus, "bpe", "small-english", "--json"))
    assert result["trained_on_file"] == ["bpe"] and list(result["tokenizers"]) == ["bpe", "small-english"]
    assert result["tokenizers"]["small-english"]["vocab_size"] == 2560


def test_compare_shows_both_tokenizers_of_a_translator(corpus: Path, tmp_path: Path) -> None:
    char, byte = train("char", ["cats"]), train("byte", [])
    char.with_sources(byte).save(tmp_path / "t")
    both = json.loads(said("compare", corpus, tmp_path / "t", "--json"))["tokenizers"]
    assert {name: each["kind"] for name, each in both.items()} == {"t": "char", "t (sources)": "byte"}


def test_what_compare_refuses(corpus: Path, tmp_path: Path) -> None:
    assert "or a kind to train on the file: bpe" in refused("compare", corpus, tmp_path / "none")
    assert "'bpe' is given 2 times" in refused("compare", corpus, "bpe", "bpe")
    assert "--vocab-size is for kinds" in refused("compare", corpus, "byte", "--vocab-size", 300)
    assert "there is no file" in refused("compare", tmp_path / "none.txt", "bpe")


def test_the_textbook_words_as_typed_on_one_line(tmp_path: Path) -> None:
    """Without line ends, words after the first begin with a space."""
    path = tmp_path / "typed.txt"
    path.write_text("cats mats mate ate")
    trace = json.loads(said("train", path, *CHARACTERS, "--trace", "--json"))["trace"]
    merges = ["at", "mat", "▁mat", "cat", "▁at", "▁mate", "▁mats", "cats", "▁ate"]
    assert [step["token"] for step in trace] == merges
    assert trace[-1]["words"] == [["cats"], ["▁mats"], ["▁mate"], ["▁ate"]]


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/tokenizers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert len(blocks) >= 4
    for command, shown in (
        part for block in blocks for part in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
    ):
        if command.startswith("printf"):
            subprocess.run(command, shell=True, check=True)
        else:
            printed = said(*shlex.split(command.removeprefix("qkv tokenizer")))
            assert [line.rstrip() for line in printed.strip().splitlines()] == shown.strip().splitlines(), command
