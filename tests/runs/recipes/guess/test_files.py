"""What is guessed for one file: its kind and its encoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from guessable_files import conversations, labelled_lines, pairs_tsv, plain, reviews_csv, series, tagged, write

from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize("make", [reviews_csv, series, pairs_tsv, tagged, plain, labelled_lines, conversations])
def test_what_is_not_utf_8_is_read_as_it_is_guessed(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    path.write_bytes(path.read_text().replace("dog", "b\u00e4r").replace("inside", "d\u00e4r").encode("latin-1"))
    found = guess(path)
    assert next(Recipe.load(found.recipe, found.settings).data.examples("train"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", "\n\n", "it is empty"),
        ("what.csv", "a,b\nx1,y1\nx2,y2\nx3,y3\n", "that is neither pairs, labels, scores nor numbers"),
        ("settings.json", '{"a": 1}', "it is JSON in no format that is known"),
        ("one.fasta", ">a\nMKV\n", "it is FASTA, whose labels are in another file"),
    ],
)
def test_what_fits_nothing_is_said_with_what_was_seen(name: str, content: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't tell what to train on") as caught:
        guess(write(tmp_path / name, content))
    assert said in str(caught.value) and "folders of images, videos or sounds by class" in str(caught.value)


def test_a_text_in_latin_1_is_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_bytes(reviews_csv(tmp_path).read_text().replace("dog", "bär").replace(",", "\t").encode("latin-1"))
    assert "data.encoding=latin-1" in guess(path).settings


@pytest.mark.parametrize("make", [reviews_csv, pairs_tsv, plain, conversations])
def test_a_text_in_cp1252_keeps_its_quotation_marks(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    path.write_bytes(path.read_text().replace("dog", "„Bär“ €").replace("inside", "„d“").encode("cp1252"))
    found = guess(path)
    assert "data.encoding=cp1252" in found.settings
    read = "".join(map(str, Recipe.load(found.recipe, found.settings).data.examples("train")))
    assert "„" in read and "\x84" not in read


def test_files_given_together_have_one_encoding(tmp_path: Path) -> None:
    latin, utf8, quoted, plain_ascii = (tmp_path / name for name in ("a.de", "b.de", "c.de", "d.en"))
    latin.write_bytes("schön\n".encode("latin-1") * 9)
    utf8.write_bytes("schön\n".encode() * 9)
    quoted.write_bytes("„schön“\n".encode("cp1252") * 9)
    plain_ascii.write_bytes(b"nice\n" * 9)
    assert not [one for one in guess(utf8, plain_ascii).settings if "encoding" in one]
    assert "data.encoding=latin-1" in guess(plain_ascii, latin).settings
    assert "data.encoding=cp1252" in guess(latin, quoted).settings
    with pytest.raises(ValueError, match=r"a\.de is in latin-1, and b\.de in utf-8; save all in UTF-8"):
        guess(latin, utf8)
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("text,label\n" + "".join(f"a long review {i},{i % 2}\n" for i in range(60)))
    dev.write_bytes("text,label\na „schön“ review,1\n".encode("cp1252"))
    assert "data.encoding=cp1252" in guess(train, dev).settings


def test_a_parquet_file(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = [{"review": f"a long review of film {i}", "stars": i % 3} for i in range(60)]
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    guessed = guess(tmp_path / "a.parquet")
    assert guessed.recipe == "classify" and {"data.text=review", "data.label=stars"} <= set(guessed.settings)
