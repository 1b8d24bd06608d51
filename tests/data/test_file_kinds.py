"""Files whose name says text or table, and whose first bytes say something else."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import re
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image

from qkv.data.file_kinds import other_kind, other_table
from qkv.data.files.encodings import open_text
from qkv.data.readers.labelled_text import Labelled
from qkv.runs.recipes.guess import guess

TABLE = "text,label\n" + "".join(f"film {n} is good,pos\nfilm {n} is bad,neg\n" for n in range(30))
FRAME = pandas.read_csv(io.StringIO(TABLE))
PAGE = f"<!DOCTYPE html>\n<html><body>{FRAME.to_html(index=False)}</body></html>\n"


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, TABLE)
    return file.getvalue()


def database(folder: Path) -> bytes:
    connection = sqlite3.connect(folder / "x.db")
    FRAME.to_sql("films", connection)
    connection.close()
    return (folder / "x.db").read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    picture, parquet, array = io.BytesIO(), io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "png")
    FRAME.to_parquet(parquet)
    np.save(array, FRAME.to_numpy(str))
    return {
        "with gzip": gzip.compress(TABLE.encode()),
        "with bzip2": bz2.compress(TABLE.encode()),
        "with xz": lzma.compress(TABLE.encode()),
        "zip archive": zipped("a{b}.csv"),
        "Excel workbook (.xlsx)": zipped("[Content_Types].xml", "xl/workbook.xml"),
        "Word document": zipped("word/document.xml"),
        "damaged zip": b"PK\x03\x04 and no more",
        "(.xls)": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "PDF": b"%PDF-1.4\ntext",
        "rich-text document": b"{\\rtf1\\ansi words\\par}",
        "e-book (EPUB)": zipped("mimetype", "META-INF/container.xml", "EPUB/text/ch001.xhtml"),
        "OpenDocument": zipped("mimetype", "META-INF/manifest.xml", "content.xml"),
        "Arrow": b"ARROW1\0\0" + bytes(600),
        "PNG": picture.getvalue(),
        "Parquet": parquet.getvalue(),
        "SQLite": database(folder),
        "NumPy": array.getvalue(),
        **{f"pickle of {n}": pickle.dumps(FRAME, protocol=n) for n in (2, 3, 4, 5)},
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".json", ".jsonl", ".xls"])
def test_a_file_of_another_kind_than_its_name_is_called_by_what_it_is(tmp_path: Path, suffix: str) -> None:
    for what, content in contents(tmp_path).items():
        path = tmp_path / f"data{suffix}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="whatever its name says; ") as error:
            guess(path)
        said = str(error.value)
        assert what.removesuffix(" of 2")[:6] in said and "UTF-16" not in said, said
        for written in re.findall(r"(?: -o|pdftotext \S+|\.to_\w+\() ?(\S+)", said):  # never over what it reads
            assert ".new." in written, said
        with pytest.raises(ValueError, match="whatever its name says"):
            open_text(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a b.rtf", "a b.rtf is a rich-text document (RTF); save it as plain text in UTF-8"),
        (
            "a b.epub",
            "is an e-book (EPUB); save its text as .txt, for example with `pandoc -f epub -t plain '{path}' -o '",
        ),
        ("a b.odt", "is an OpenDocument file, such as .ods or .odt; save it in LibreOffice as CSV or text, in UTF-8"),
        ("a b.ipynb", "it is a Jupyter notebook; `jupyter nbconvert --to markdown '{path}'` writes its text alone"),
    ],
)
def test_documents_are_refused_by_their_names(tmp_path: Path, name: str, said: str) -> None:
    every, path = contents(tmp_path), tmp_path / name
    known = {".rtf": "rich-text document", ".epub": "e-book (EPUB)", ".odt": "OpenDocument"}
    path.write_bytes(every[known[path.suffix]] if path.suffix in known else b'{"cells": [], "nbformat": 4}')
    with pytest.raises(ValueError, match=re.escape(said.format(path=path))):
        guess(path)
    if path.suffix in known:
        with pytest.raises(ValueError, match=re.escape(said.format(path=path))):
            open_text(path)


def test_texts_are_no_other_kind(tmp_path: Path) -> None:
    for text in (
        TABLE,
        "PK is a name\n",
        "GIF87 pictures\n",
        "BZhang,a\n",
        "PAR1,a\n",
        "ARROW1,a\n",
        "\x80\n",
        "BZ\n",
        "{}\n",
        "<html> is a tag\n",
    ):
        (tmp_path / "a.csv").write_text(text, encoding="utf-8")
        assert other_table(tmp_path / "a.csv", text.encode()) is None


def test_an_html_page_is_no_table_and_may_be_a_text(tmp_path: Path) -> None:
    for suffix in (".csv", ".tsv", ".xls", ".json"):
        (tmp_path / f"data{suffix}").write_text(PAGE)
        with pytest.raises(ValueError, match="is an HTML page"):
            guess(tmp_path / f"data{suffix}")
    (tmp_path / "page.txt").write_text(PAGE)
    assert other_kind(tmp_path / "page.txt", PAGE.encode()) is None
    assert guess(tmp_path / "page.txt").recipe == "lm"


def test_training_says_it_too(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    for content, said in ((gzip.compress(TABLE.encode()), "gzip"), (PAGE.encode(), "HTML")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            next(Labelled.from_dict({"path": str(path), "text": "text"}).examples())


def test_a_file_with_the_right_name_is_read(tmp_path: Path) -> None:
    every = contents(tmp_path)
    for name, what in (("a.csv.gz", "with gzip"), ("a.csv.bz2", "with bzip2"), ("a.parquet", "Parquet")):
        (tmp_path / name).write_bytes(every[what])
        assert guess(tmp_path / name).recipe == "classify"


def test_a_text_whose_name_says_more_is_told(tmp_path: Path) -> None:
    for name, said in (("a.parquet", "it is text: give it the name"), ("a.csv.gz", "rename it without .gz")):
        (tmp_path / name).write_text(TABLE)
        with pytest.raises(ValueError, match=said):
            guess(tmp_path / name)
    (tmp_path / "b.parquet").write_bytes(gzip.compress(TABLE.encode()))
    with pytest.raises(ValueError, match="is compressed with gzip, whatever its name says"):
        guess(tmp_path / "b.parquet")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:50])
    with pytest.raises(ValueError, match=r"is not a whole gzip file \((?!.*rename)"):
        guess(tmp_path / "c.csv.gz")


def test_an_archive_of_a_table_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped("a.csv"))
    with pytest.raises(ValueError, match=r"it holds 1 × \.csv; unpack it, and give a file"):
        guess(tmp_path / "a.zip")
