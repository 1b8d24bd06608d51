"""`qkv vectors`, alone: the main command turns the ValueErrors seen here into a sentence and exit status 2."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from qkv.cli.vectors import app
from qkv.data.tokenizers.tokenizer import train
from qkv.data.vectors.word2vec_format import read


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Lines about the sea or the sky."""
    random = Random(0)
    topics = [["wave", "fish", "boat", "salt"], ["cloud", "wind", "bird", "star"]]
    path = tmp_path / "corpus.txt"
    path.write_text("".join(" ".join(random.choices(random.choice(topics), k=8)) + "\n" for _ in range(300)))
    return path


def qkv_vectors(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments: Any) -> str:
    result = qkv_vectors(*arguments)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*arguments: Any) -> str:
    result = qkv_vectors(*arguments)
    assert isinstance(result.exception, ValueError)
    return str(result.exception)


@pytest.mark.parametrize("method", ["skipgram", "glove"])
def test_vectors_are_learned_looked_at_and_converted(method: str, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.txt"
    few = ["--subsample", 0] if method == "skipgram" else []  # of eight words each is frequent
    told = said("train", corpus, "--out", out, "--method", method, "--width", 12, "--epochs", 8, "--window", 3, *few)
    assert told.startswith("8 vectors of width 12 from 2,400 running words, ") and told.endswith(f"written to {out}\n")
    near = json.loads(said("nearest", out, "fish", "--count", 3, "--json"))
    assert set(near) == {"wave", "boat", "salt"}
    lines = said("nearest", out, "fish", "--count", 3).splitlines()
    assert [line.split()[1] for line in lines] == list(near)
    assert len(said("analogy", out, "fish", "wave", "bird", "--count", 2).splitlines()) == 2
    assert said("convert", out, tmp_path / "v.bin") == f"8 vectors of width 12 written to {tmp_path / 'v.bin'}\n"
    assert read(tmp_path / "v.bin").words == read(out).words


def test_coverage_is_told(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.txt"
    said("train", corpus, "--out", out, "--width", 4, "--epochs", 1)
    tokenizer = train("word", ["fish bird stone"]).save(tmp_path)
    assert said("coverage", out, tokenizer) == "2 of the tokenizer's 3 words have a vector (66.7%).\n"
    (tmp_path / "t.txt").write_text("fish fish stone bird\n")
    assert "3 of 4 running tokens (75.0%)" in said("coverage", out, tokenizer, tmp_path / "t.txt")


def test_mistakes_are_told(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.txt"
    assert "did you mean 'skipgram'" in refused("train", corpus, "--out", out, "--method", "skipgramm")
    assert "lower min_count" in refused("train", corpus, "--out", out, "--min-count", 9999)
    assert "there is no folder" in refused("train", corpus, "--out", tmp_path / "no" / "v.txt")
    assert "there is no file" in refused("train", tmp_path / "no.txt", "--out", out)
    assert not out.exists()
    out.write_text("fish 1 2\nfish 3 4\n")
    assert "already exists; replace it with --overwrite" in refused("train", corpus, "--out", out)
    assert "is the input, which is never written over" in refused("train", corpus, "--out", corpus, "--overwrite")
    assert "is the input, which is never written over" in refused("convert", out, out, "--overwrite")
    assert "line 2: the word 'fish' occurred in line 1 already" in refused("nearest", out, "fish")
    result = qkv_vectors("nearest", out, "fish", "--keep-first")
    assert "repeat a word and were left out ('fish')" in result.output
    assert "there is no vector for 'fihs'; did you mean 'fish'" in refused("nearest", out, "fihs", "--keep-first")
    assert "did you mean 'glove'" in refused("convert", out, tmp_path / "w", "--form", "glov", "--keep-first")
