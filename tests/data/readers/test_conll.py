"""Words and tags in columns: CoNLL's files and CoNLL-U."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from qkv.data.files.compressed import open_bytes
from qkv.data.readers.conll import Columns
from qkv.data.source import Skipped

PLAIN = "EU B-ORG\nrejects O\n\n\nPeter B-PER\nBlackburn I-PER\n \n-DOCSTART- O\n\n#tag O\n"
UNIVERSAL = (
    "# sent_id = 1\n# text = Don't go\n1-2\tDon't\t_\t_\t_\n1\tDo\tdo\tAUX\tVBP\n"
    "2\tn't\tnot\tPART\tRB\n2.1\tnow\tnow\tADV\tRB\n3\tgo\tgo\tVERB\tVB\n\n"
)


def source(folder: Path, name: str, text: str, **settings: object) -> Columns:
    path = folder / name
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))
    return Columns(path=str(path), validation_path=str(path), test_path=str(path), **settings)


@pytest.mark.parametrize("name", ["a.conll", "a.conll.gz", "a.txt.xz"])
def test_sentences_are_between_empty_lines(tmp_path: Path, name: str) -> None:
    table = source(tmp_path, name, PLAIN).table("train")
    rows = [table[i] for i in range(len(table))]
    assert [row["words"] for row in rows if isinstance(row, dict)] == [
        ["EU", "rejects"],
        ["Peter", "Blackburn"],
        ["#tag"],
    ]
    assert rows[1]["tags"] == ["B-PER", "I-PER"] and rows[1]["text"] == "Peter Blackburn"
    assert isinstance(rows[2], Skipped)


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.xz"])
def test_conllu_has_words_and_universal_tags_without_what_is_no_word(tmp_path: Path, name: str) -> None:
    (row,) = source(tmp_path, name, UNIVERSAL).examples("test")
    assert (row["words"], row["tags"]) == (["Do", "n't", "go"], ["AUX", "PART", "VERB"])
    (row,) = source(tmp_path, name, UNIVERSAL, tag=4).examples("test")
    assert row["tags"] == ["VBP", "RB", "VB"]


def test_a_line_without_a_tag_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"bad.conll', line 4: .* columns 0 and -1 .*: 'rejects'; see `word` and `tag`"
    ):
        list(source(tmp_path, "bad.conll", "EU B-ORG\n\nGerman O\nrejects\n").examples("test"))
    with pytest.raises(ValueError, match=r"line 1: .* columns 0 and 3"):
        list(source(tmp_path, "few.conll", "EU NNP B-ORG\n", tag=3).examples("test"))


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.conll.xz"
    path.write_bytes(lzma.compress(PLAIN.encode())[:-20])
    with pytest.raises(ValueError, match="is not a whole xz file"):
        open_bytes(path)
    with pytest.raises(ValueError, match="no training data"):
        Columns().table("train")


def test_a_line_of_other_spaces_in_a_sentence_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_text("1\ta\t_\tNOUN\n\u3000\n2\tb\t_\tNOUN\n")
    source = Columns(path=str(tmp_path / "x.conllu"), validation_path="v", test_path="t")
    with pytest.raises(ValueError, match=r"x\.conllu', line 2: a word and its tag are columns 1 and 3 .* has 0"):
        source.table("train")[0]


def test_a_line_with_another_number_of_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("EU B-ORG\nNew York B-LOC\n\none O\n\nthree columns O\nhere too O\n")
    table = Columns(path=str(tmp_path / "x.conll")).open("train")
    with pytest.raises(
        ValueError, match=r"line 2 has 3 columns, and the lines before it in the sentence have 2: 'New York"
    ):
        table[0]
    assert [len(table[i]["words"]) for i in (1, 2)] == [1, 2]
    skipped = Columns(path=str(tmp_path / "x.conll"), on_error="skip").readable("train")
    with pytest.warns(UserWarning, match="line 2 has 3 columns"):
        assert skipped[0] == "damaged"


@pytest.mark.parametrize("empty", ["", " ", "\t\t", "\u00a0", "\r"])
def test_lines_of_spaces_end_a_sentence(tmp_path: Path, empty: str) -> None:
    (tmp_path / "x.conll").write_text(f"EU B-ORG\nsays O\n{empty}\nNew B-LOC\n", newline="")
    table = Columns(path=str(tmp_path / "x.conll")).open("train")
    assert [table[i]["words"] for i in range(len(table))] == [["EU", "says"], ["New"]]


def test_spaces_of_other_languages_are_part_of_a_word(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("10\u00a0000 B-NUM\n\u3000x O\n")
    example = Columns(path=str(tmp_path / "x.conll")).open("train")[0]
    assert (example["words"], example["tags"]) == (["10\u00a0000", "\u3000x"], ["B-NUM", "O"])


def test_comments_above_a_sentence_are_left_out_and_a_token_is_not(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text(
        "# id 1\n#\thttp://x\t[2009]\nEU B-ORG\n\n# O\n1 O\n\nis O\n# O\n\n# only a comment\n"
    )
    table = Columns(path=str(tmp_path / "x.conll")).open("train")
    assert [table[i]["words"] for i in range(3)] == [["EU"], ["#", "1"], ["is", "#"]]


def test_comments_with_as_many_columns_as_words_are_told_by_their_tags(tmp_path: Path) -> None:
    file = tmp_path / "x.conll"
    file.write_text("# id 1\nEU N B-ORG\n\n# id 2\n# O O\n1 N O\n\nis V O\n")
    table = Columns(path=str(file)).open("train")
    assert [table[i]["words"] for i in range(3)] == [["EU"], ["#", "1"], ["is"]]
    file.write_text("# # O\n1 N O\n\nEU N O\n\nis V O\n")
    assert Columns(path=str(file)).open("train")[0]["words"] == ["#", "1"]
