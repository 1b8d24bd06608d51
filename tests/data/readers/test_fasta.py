"""FASTA: sequences, labels for their symbols, and which of these count."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from qkv.data.readers.fasta import Fasta, records
from qkv.data.source import Counts, read

SEQUENCES = ">a\nMKT\nAYI\n>b\nGG\n>c\nAAAA\n>d\nM\n"
LABELS = ">a SET=train VALIDATION=False\nHHHCCC\n>b SET=test\nEE\n>c SET=train VALIDATION=True\nCCCC\n>d SET=train\nC\n"
MASK = ">a\n011110\n>b\n11\n>c\n0000\n>d\n1\n"


def write(folder: Path, **files: str) -> dict[str, str]:
    made = {}
    for name, text in files.items():
        (folder / f"{name}.fasta").write_text(text)
        made[name] = str(folder / f"{name}.fasta")
    return made


def test_labels_stand_beside_symbols_and_headers_say_the_split(tmp_path: Path) -> None:
    source = Fasta(**write(tmp_path, path=SEQUENCES, labels=LABELS, mask=MASK))
    (a,) = source.examples("train")
    assert a["text"] == "MKTAYI" and a["words"] is a["text"]
    assert a["tags"] == ["", "H", "H", "C", "C", ""]
    assert [one["text"] for one in source.examples("test")] == ["GG"]
    assert [one["tags"] for one in source.examples("validation")] == [["", "", "", ""]]


def test_what_has_no_labels_is_skipped_and_counted(tmp_path: Path) -> None:
    source = Fasta(**write(tmp_path, path=SEQUENCES + ">e\nMKV\n>f SET=test\nMK\n", labels=LABELS))
    counts = Counts()
    table = source.table("train")
    assert [one["text"] for one in read(table, range(len(table)), counts)] == ["MKTAYI"]
    assert counts.skipped == {"without labels": 1, "too short": 1}
    table = source.table("test")
    assert len(read(table, range(len(table)), counts)) == 1 and counts.skipped["without labels"] == 2


def test_files_are_read_from_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("in/seq.fasta", SEQUENCES)
        archive.writestr("in/lab.fasta", LABELS)
    source = Fasta(path=f"{tmp_path}/s.zip/in/seq.fasta", labels=f"{tmp_path}/s.zip/in/lab.fasta")
    assert next(source.examples("test"))["tags"] == ["E", "E"]
    with pytest.raises(ValueError, match=r"has no 'in/no.fasta'"):
        Fasta(path=f"{tmp_path}/s.zip/in/no.fasta").table("test")


def test_sequences_alone_are_text_and_held_out(tmp_path: Path) -> None:
    many = "".join(f">s{i}\n{'ACDEFGHIK'[i % 9] * (i % 7 + 2)}{'LMN'[i % 3]}\n" for i in range(60))
    source = Fasta(**write(tmp_path, path=many))
    assert "held out" in source.notes()[0]
    assert {"text", "where"} == set(next(source.examples("train")))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"path": "MKT\n"}, "line 1: a FASTA file begins with a header"),
        ({"path": ">a\nMKT\n>a\nG\n"}, "line 3: the name 'a' occurs twice"),
        ({"path": ">\nMKT\n"}, "a header without a name"),
        (
            {"path": SEQUENCES, "labels": LABELS.replace("HHHCCC", "HHH")},
            r"line 1 \(a\): 6 symbols have 3 in the labels",
        ),
        ({"path": SEQUENCES, "labels": LABELS, "mask": MASK.replace("011110", "01111x")}, "a mask consists of 1 and 0"),
        ({"path": SEQUENCES, "labels": LABELS, "mask": ">b\n11\n"}, "the mask have no 'a'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(Fasta(**write(tmp_path, **files)).examples("train", shuffle=False))


def test_a_mask_needs_labels() -> None:
    with pytest.raises(ValueError, match="give labels too"):
        Fasta(path="a", mask="b")


def test_comments_blanks_and_encodings_of_descriptions_leave_the_symbols_alone(tmp_path: Path) -> None:
    for content in (
        b"; a comment\n>a\n; taxid 9606\nMKT AYI\n>b\nGG\n",
        b"\xef\xbb\xbf>a\r\nMKT\r\nAYI\r\n>b\r\nGG\r\n",
        ">a β-lactamase\nMKTAYI\n>b\nGG\n".encode(),
        ">a caf\xe9\nMKTAYI\n>b\nGG\n".encode("latin-1"),
    ):
        (tmp_path / "a.fasta").write_bytes(content)
        assert [record.symbols for record in records(str(tmp_path / "a.fasta")).values()] == ["MKTAYI", "GG"]
        (tmp_path / "a.fasta").unlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b">a\n1 MKTAYI\n", "line 2 begins with a number"),
        (b">a\nMK\0T\n", "line 2: symbols of FASTA are ASCII"),
        (">a\nMKT\n".encode("utf-16"), "is UTF-16"),
        (b"\x1f\x8b\x08\x00", "compressed|gzip"),
        (b"PK\x03\x04", "is compressed"),
    ],
)
def test_what_is_no_fasta_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.fasta").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        records(str(tmp_path / "a.fasta"))


def test_all_spellings_of_a_split_are_known_and_others_refused(tmp_path: Path) -> None:
    text = "".join(f">{i} SET={name}\nMKT\n" for i, name in enumerate(("train", "dev", "validation", "test")))
    source = Fasta(**write(tmp_path, path=text))
    assert [len(source.table(split)) for split in ("train", "validation", "test")] == [1, 2, 1]
    with pytest.raises(ValueError, match=r"1 header with an unknown split, first line 9 \(x\): SET=tset"):
        Fasta(**write(tmp_path, path=text + ">x SET=tset\nMKT\n")).table("train")
