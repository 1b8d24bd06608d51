"""Random CSV and TSV files are read as pandas reads them, in every split together."""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from pathlib import Path

import pandas
import pytest

from qkv.data.files.csv_tsv import Cells, Form
from qkv.data.readers.labelled_text import Labelled
from qkv.data.source import SPLITS

WORDS = ("the", "film", "was", "dull", "and", "bright", "naïve", "über", "café", "映画", "добрый", "never", "again")
BREAKS = [", ", '"', '""', "\n", "\t", ";", "|", "'", "\r\n", "#", "\n\n", '"so"', ',"', "", "", "", "", "", ""]


def random_text(draw: random.Random) -> str:
    words = [draw.choice(WORDS) for _ in range(draw.choice([2, 3, 5, 8, 13]))]
    at = draw.randrange(len(words))
    return " ".join(words[:at]) + draw.choice(BREAKS) + " ".join(words[at:])


def random_file(seed: int, folder: Path) -> tuple[Path, pandas.DataFrame, str]:
    """A table as pandas' `to_csv` or Python's `csv` writes it, beside its contents and its separator."""
    draw = random.Random(seed)
    names = draw.choice([["text", "label"], ["label", "text"], ["id", "text", "label"], ["text", "note", "label"]])
    rows = [
        {"text": random_text(draw), "label": draw.choice(["pos", "neg"]), "id": str(i), "note": draw.choice(["", "a"])}
        for i in range(draw.choice([12, 40, 90]))
    ]
    frame = pandas.DataFrame(rows)[names]
    form = draw.choice(["csv", "tsv"])
    sep = "\t" if form == "tsv" else draw.choice(",,,;|\t")
    end = draw.choice(["\n", "\r\n"])
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    out = io.StringIO(newline="")
    frame.to_csv(out, sep=sep, index=False, quoting=quoting, lineterminator=end)  # type: ignore[call-overload]
    text = draw.choice(["", "", "", end]) + out.getvalue() + draw.choice(["", "", end, 3 * end])
    path = folder / f"{seed}.{form}"
    path.write_bytes(text.encode(draw.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"])))
    return path, frame, sep


def check(seed: int, folder: Path) -> None:
    path, frame, sep = random_file(seed, folder)
    form: Form = "tsv" if path.suffix == ".tsv" else "csv"
    encoding = "utf-16" if path.read_bytes()[:2] == b"\xff\xfe" else "utf-8-sig"
    read = pandas.read_csv(path, sep=sep, dtype=str, keep_default_na=False, encoding=encoding)
    cells = Cells(path, form, "utf-8")
    assert tuple(frame.columns) == cells.names(None) == tuple(read.columns), path
    assert [cells[i] for i in range(1, len(cells)) if cells[i]] == read.values.tolist() == frame.values.tolist(), path
    source = Labelled(path=str(path))
    tables = [source.table(split) for split in SPLITS]
    examples = [table[i] for table in tables for i in range(len(table))]
    found = Counter((one["text"], one["label"]) for one in examples if isinstance(one, dict))
    wanted = Counter(zip(frame["text"].str.strip(), frame["label"], strict=True))
    assert set(found) == set(wanted) and not found - wanted, path  # rows equal to a held-out row are in no split
    left = (wanted - found).total()
    assert not left or f"; {left:,} row" in " ".join(source.notes()), path


def test_random_tables_are_read_as_pandas_reads_them(tmp_path: Path) -> None:
    for seed in range(60):
        check(seed, tmp_path)


@pytest.mark.slow
def test_many_random_tables_are_read_as_pandas_reads_them(tmp_path: Path) -> None:
    for seed in range(60, 3000):
        check(seed, tmp_path)
