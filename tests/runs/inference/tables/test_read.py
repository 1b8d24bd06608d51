"""Files as inputs and outputs of a run: every column stays, and the results equal those from Python."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image
from run_untrained import bert, of, vit, words

import qkv
from qkv.cli import main
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.heads.text import Span, TokenClassifier
from qkv.runs.inference.tables.read import read_table

TEXTS = ["good film", "bad\nfilm", "", 'a "fine" film, really', "tab\there"]
NOTES = ["1", "x\ny", "3", "ä;b", ""]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "gpt": of("gpt2", words(), "continue"),
        "translator": of("transformer", words(), "translate"),
        "masked": of("bert-base", words(), "read", max_positions=64),
        "classifier": bert(SequenceClassifier(labels=2)),
        "tagger": bert(TokenClassifier(labels=3)),
        "number": bert(SequenceClassifier(labels=1)),
        "answers": bert(Span()),
    }
    for name, run in made.items():
        run.save(folder / name, "qkv")
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def written(texts: list[str] = TEXTS, name: str = "message") -> None:
    pandas.DataFrame({"id": range(len(texts)), name: texts, "note": NOTES[: len(texts)]}).to_csv("in.csv", index=False)


def read_back(path: str) -> list[dict[str, Any]]:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    frame = pandas.read_parquet(path) if path.endswith(".parquet") else None
    if frame is None:
        frame = pandas.read_csv(path, sep="\t" if path.endswith(".tsv") else ",", keep_default_na=False)
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return rows


@pytest.mark.parametrize("out", ["out.csv", "out.tsv", "out.jsonl", "out.parquet"])
@pytest.mark.parametrize("command", ["predict", "classify"])
def test_columns_stay_and_predictions_are_added(
    command: str, out: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written()
    run = qkv.load(runs / "classifier")
    assert main([command, str(runs / "classifier"), "in.csv", "--out", out]) == 0
    told = capsys.readouterr()
    assert "Wrote 5 rows" in told.out and "1 blank or refused, with empty cells" in told.out
    assert "reading 'message' (--column NAME for another: id, note)" in told.err
    rows = read_back(out)
    assert [str(row["note"]) for row in rows] == NOTES and [row["message"] for row in rows] == TEXTS
    for row, text in zip(rows, TEXTS, strict=True):
        if not text:
            assert row["prediction"] is None or row["prediction"] != row["prediction"] or row["prediction"] == ""
            continue
        result = run.classify(text)
        assert row["prediction"] == result.label
        assert float(row["probability"]) == pytest.approx(result.probabilities[result.label], abs=1e-6)
        for label, share in result.probabilities.items():
            cell = row["probabilities"][label] if out.endswith("jsonl") else row[f"probability_{label}"]
            assert float(cell) == pytest.approx(share, abs=1e-6)


def test_a_table_in_cp1252_keeps_its_quotation_marks_and_another_script_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_bytes("id,text\n1,„ab“ €\n".encode("cp1252"))
    assert main(["predict", str(runs / "classifier"), "in.csv", "--out", "out.jsonl"]) == 0
    assert read_back("out.jsonl")[0]["text"] == "„ab“ €"
    Path("in.csv").write_bytes("id,text\n1,señor\n".encode("cp1252"))
    assert main(["predict", str(runs / "classifier"), "in.csv"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "is read as latin-1, which is a guess: its first word with such letters is 'señor'" in said
    assert "'señor' is 'seńor' in cp1250" in said
    Path("other.csv").write_bytes("id,text\n1,привет мир\n".encode("cp1251"))
    assert main(["predict", str(runs / "classifier"), "other.csv", "--out", "other.jsonl"]) == 2
    assert "other.csv: it is not UTF-8, and its letters are not Western ones" in capsys.readouterr().err


def test_nul_characters_are_told(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_bytes(b"id,text\n1,good\n2,bad\0 film\n")
    assert main(["predict", str(runs / "classifier"), "in.csv"]) == 0
    assert "in.csv has 1 NUL character (the first in line 3), kept as part of the text" in capsys.readouterr().err


def test_an_object_is_no_text_and_its_fields_are(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_text('{"text": {"body": "good film"}}\n{"text": {"body": "bad film"}}\n')
    assert main(["predict", str(runs / "classifier"), "in.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "in.jsonl', line 1: 'text' is no text but an object" in said and "--column text.FIELD" in said
    assert main(["predict", str(runs / "classifier"), "in.jsonl", "--column", "text.body", "--out", "out.jsonl"]) == 0
    expected = qkv.load(runs / "classifier").classify(["good film", "bad film"])
    assert [row["prediction"] for row in read_back("out.jsonl")] == [one.label for one in expected]


@pytest.mark.parametrize("command", ["predict", "classify", "embed"])
def test_a_file_of_another_kind_than_its_name_is_refused(
    runs: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "<html><table><tr><td>text</td></tr><tr><td>good</td></tr></table></html>"
    for suffix, content, said in (
        ("csv", gzip.compress(b"text\ngood film\n"), "is compressed with gzip, whatever its name says; give it a name"),
        ("txt", b"%PDF-1.4\ngood", "is a PDF document"),
        ("jsonl", b"PAR1 good PAR1", "is a Parquet file"),
        ("tsv", page.encode(), "is an HTML page"),
        ("xls", page.encode(), "is an HTML page"),
    ):
        Path(f"in.{suffix}").write_bytes(content)
        assert main([command, str(runs / "classifier"), f"in.{suffix}"]) == 2
        assert f"in.{suffix} {said}" in capsys.readouterr().err


def test_every_form_of_input_is_read(runs: Path) -> None:
    pandas.DataFrame({"id": [1, 2], "text": ["ab", "cd"]}).to_parquet("in.parquet")
    Path("in.jsonl").write_text('{"text": "ab", "more": {"x": [1]}}\n{"text": "cd", "more": null}\n')
    Path("in.tsv").write_text("id\ttext\n1\tab\n2\tcd\n")
    Path("in.txt").write_text("ab\ncd\n")
    Path("semicolon.csv").write_text("id;text\n1;ab\n2;cd\n")
    Path("packed.csv.gz").write_bytes(gzip.compress(b"id,text\n1,ab\n2,cd\n"))
    Path("latin.csv").write_bytes("id,text\n1,ab\n2,cd\n3,é\n".encode("latin-1"))
    expected = [one.label for one in qkv.load(runs / "classifier").classify(["ab", "cd"])]
    for name in ("in.parquet", "in.jsonl", "in.tsv", "in.txt", "semicolon.csv", "packed.csv.gz", "latin.csv"):
        assert main(["predict", str(runs / "classifier"), name, "--out", "out.jsonl", "--overwrite"]) == 0
        rows = read_back("out.jsonl")
        assert [row["prediction"] for row in rows][:2] == expected and [row["text"] for row in rows][:2] == ["ab", "cd"]
    assert main(["predict", str(runs / "classifier"), "in.jsonl", "--out", "same.jsonl"]) == 0
    assert read_back("same.jsonl")[0]["more"] == {"x": [1]}
    assert main(["predict", str(runs / "classifier"), "in.parquet", "--out", "same.parquet"]) == 0
    assert pandas.read_parquet("same.parquet").dtypes["id"] == np.int64
    assert main(["predict", str(runs / "classifier"), "semicolon.csv", "--out", "same.csv"]) == 0
    assert Path("same.csv").read_text().startswith("id;text;prediction;")


def test_every_command_reads_files(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(["ab", "cd"], "text")
    pandas.DataFrame({"text": ["a<mask>", "<mask>b"]}).to_csv("masks.csv", index=False)
    pandas.DataFrame({"target": ["ba", "dc"], "source": ["ab", "cd"]}).to_csv("pairs.csv", index=False)
    pandas.DataFrame({"context": ["a b c"] * 2, "question": ["b", "c"]}).to_csv("questions.csv", index=False)
    gpt, short = qkv.load(runs / "gpt"), ["--max-new-tokens", "2"]
    assert main(["generate", str(runs / "gpt"), "in.csv", *short, "--out", "g.csv"]) == 0
    assert [row["output"] for row in read_back("g.csv")] == gpt.generate(["ab", "cd"], max_new_tokens=2)
    assert main(["translate", str(runs / "translator"), "pairs.csv", *short, "--scores", "--out", "t.jsonl"]) == 0
    expected = qkv.load(runs / "translator").generate(["ab", "cd"], max_new_tokens=2)
    assert [row["output"] for row in read_back("t.jsonl")] == expected and read_back("t.jsonl")[0]["score"] < 0
    assert main(["score", str(runs / "translator"), "pairs.csv", "--out", "s.jsonl"]) == 0
    score = qkv.load(runs / "translator").score("ab", "ba").log_likelihood
    assert read_back("s.jsonl")[0]["log_likelihood"] == pytest.approx(score, abs=1e-4)
    assert main(["embed", str(runs / "masked"), "in.csv", "--out", "e.parquet"]) == 0
    assert main(["embed", str(runs / "masked"), "in.csv", "--out", "e.npy"]) == 0
    vectors = np.stack(qkv.load(runs / "masked").embed(["ab", "cd"]))
    np.testing.assert_allclose(np.stack(read_back_vectors("e.parquet")), vectors, atol=1e-5)
    np.testing.assert_allclose(np.load("e.npy"), vectors, atol=1e-5)
    assert main(["fill", str(runs / "masked"), "masks.csv", "--out", "f.jsonl"]) == 0
    assert read_back("f.jsonl")[0]["filled"] == qkv.load(runs / "masked").fill("a<mask>").text
    assert main(["predict", str(runs / "answers"), "questions.csv", "--out", "q.jsonl"]) == 0
    answers = qkv.load(runs / "answers").predict([("b", "a b c"), ("c", "a b c")])
    assert [row["prediction"] for row in read_back("q.jsonl")] == [one.value.answer for one in answers]
    assert main(["predict", str(runs / "tagger"), "in.csv", "--out", "tags.jsonl"]) == 0
    row = read_back("tags.jsonl")[0]
    assert len(row["prediction"].split()) == len(row["probabilities"]) and 0 < row["probabilities"][0] <= 1
    assert main(["predict", str(runs / "number"), "in.csv", "--out", "n.csv"]) == 0
    assert read_back("n.csv")[0]["prediction"] == pytest.approx(qkv.load(runs / "number").predict("ab").value, abs=1e-5)
    capsys.readouterr()
    assert main(["classify", str(runs / "classifier"), "in.csv"]) == 0  # printed, as for standard input
    assert len(capsys.readouterr().out.splitlines()) == 2


def read_back_vectors(path: str) -> list[Any]:
    return list(pandas.read_parquet(path)["embedding"])


def test_folders_and_lists_of_pictures(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("vit")
    vit().save(run, "hub")
    numbers = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_resize": True, "do_normalize": True}
    (run / "preprocessor_config.json").write_text(json.dumps({**numbers, "size": {"height": 16, "width": 16}}))
    Path("pictures/more").mkdir(parents=True)
    for name, shade in (("a.png", 0), ("more/b.png", 200)):
        Image.fromarray(np.full((16, 16, 3), shade, np.uint8)).save(Path("pictures", name))
    Path("pictures/notes.md").write_text("none")
    Path("pictures/list.csv").write_text("who,file\nx,more/b.png\ny,gone.png\n")
    for command in ("predict", "classify"):
        assert main([command, str(run), "pictures", "--out", "p.csv", "--overwrite"]) == 0
        assert "2 pictures in pictures (2 other files left out)" in capsys.readouterr().err
        rows = read_back("p.csv")
        assert [Path(row["file"]).name for row in rows] == ["a.png", "b.png"]
        expected = qkv.load(run).classify_files(["pictures/a.png", "pictures/more/b.png"])
        assert [row["prediction"] for row in rows] == [one.label for one in expected]
        assert main([command, str(run), "pictures/list.csv", "--out", "l.csv", "--overwrite"]) == 0
        assert "line 3" in capsys.readouterr().err
        listed = read_back("l.csv")
        assert listed[0]["prediction"] == expected[1].label and listed[1] == {**listed[1], "prediction": "", "who": "y"}


def test_the_input_and_existing_outputs_are_safe(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written()
    before = Path("in.csv").read_bytes()
    os.link("in.csv", "other-name.csv")
    Path("out.csv").write_text("mine")
    asked = ["predict", str(runs / "classifier"), "in.csv", "--out"]
    for out, message in (
        ("in.csv", "never written over"),
        ("other-name.csv", "never written over"),
        ("out.csv", "--overwrite"),
        ("gone/out.csv", "there is no folder"),
    ):
        assert main([*asked, out]) == 2 and message in capsys.readouterr().err
    assert main([*asked, "in.csv", "--overwrite"]) == 2
    assert Path("in.csv").read_bytes() == before and Path("out.csv").read_text() == "mine"
    assert main([*asked, "out.csv", "--overwrite"]) == 0 and "prediction" in Path("out.csv").read_text()
    assert not list(Path().glob(".tmp-*"))


def test_columns_with_the_same_names_are_kept_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("text,prediction\nab,mine\n")
    assert main(["predict", str(runs / "classifier"), "in.csv", "--out", "out.csv"]) == 0
    (row,) = read_back("out.csv")
    assert row["prediction"] == "mine" and row["prediction_2"]
    assert "'prediction' already; the new ones are 'prediction_2'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,b\nx,y\nz,w\n", ["--column", "c"], "has no column 'c'"),
        ("first,second\nsome text,other text\nmore,words\n", [], "--column NAME"),
        ("text,label\ngood, or not,1\nbad,0\n", [], "line 2"),
        ("text,text\na,b\n", [], "two columns named 'text'"),
    ],
)
def test_a_table_that_does_not_say_what_to_read(
    content: str, options: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text(content)
    assert main(["predict", str(runs / "classifier"), "in.csv", *options, "--out", "out.csv"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert message in told and not Path("out.csv").exists()


def test_a_text_that_is_also_a_file_is_noted(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("README").write_text("ab\ncd\n")
    Path("folder").mkdir()
    Path("book.xlsx").write_bytes(b"PK")
    for name, kind in (("README", "file"), ("folder", "folder")):
        assert main(["classify", str(runs / "classifier"), name]) == 0
        told = capsys.readouterr()
        assert f"though there is a {kind} of that name" in told.err and told.out.endswith(f"\t{name}\n")
    Path("book").write_bytes(b"{\\rtf1 words}")
    Path("a.ipynb").write_text('{"cells": [], "nbformat": 4}')
    for name, said in (
        ("book.xlsx", "save it as .csv"),
        ("book", "book is a rich-text document (RTF); save it as plain text in UTF-8"),
        ("a.ipynb", "a.ipynb is a Jupyter notebook; `jupyter nbconvert --to markdown a.ipynb` writes its text alone"),
    ):
        assert main(["classify", str(runs / "classifier"), name]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"README\n")))  # lines of standard input are texts
    assert main(["classify", str(runs / "classifier")]) == 0
    assert "Note" not in capsys.readouterr().err
    assert main(["classify", str(runs / "classifier"), "in the middle", "of it"]) == 0


def test_texts_and_standard_input_can_be_written_too(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["classify", str(runs / "classifier"), "ab", "cd", "--out", "a.csv"]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n\ncd\n")))
    assert main(["predict", str(runs / "classifier"), "--out", "b.csv"]) == 0
    first, second = read_back("a.csv"), read_back("b.csv")
    assert [row["text"] for row in second] == ["ab", "", "cd"]
    assert [row["prediction"] for row in second] == [first[0]["prediction"], "", first[1]["prediction"]]


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("sep, encoding", [("\t", "utf-16"), ("\t", "utf-8"), (",", "utf-8"), (";", "utf-8")])
def test_a_table_in_a_text_file_is_read_as_in_training(numbered: bool, sep: str, encoding: str) -> None:
    run = bert(SequenceClassifier(labels=2))
    columns = "data.text=0 data.label=1" if numbered else "data.text=text data.label=label"
    recipe = qkv.Recipe.load("classify", ["data.kind=labelled", "data.path=x.csv", *columns.split()])
    object.__setattr__(run, "recipe", recipe)
    lines = [f"film {i} was fine{sep}{'good' if i % 2 else 'bad'}" for i in range(20)]
    Path("in.txt").write_text("\n".join([f"text{sep}label", *lines]) + "\n", encoding=encoding)
    table = read_table(Path("in.txt"), run, "predict")
    assert table.columns == ("text",) and table.names == ("text", "label") and table.inputs[3] == "film 3 was fine"
    assert any("in.txt holds a table, whatever its name says" in note for note in table.notes)
    Path("in.txt").write_text("\n".join(lines) + "\n")  # without names
    read = read_table(Path("in.txt"), run, "predict").inputs
    assert read[3] == ("film 3 was fine" if numbered and sep == "\t" else lines[3])
    Path("in.txt").write_text("text, and more of it\nfilm\na film, was it\nso, so, so\nfilms\n")
    assert len(read_table(Path("in.txt"), run, "predict").inputs) == 5


@pytest.mark.parametrize(
    "trained, names, read",
    [
        ("text", ["TEXT", "id", "text"], "text"),
        (None, ["TEXT", "text"], "text"),
        (None, ["Sentence", "TEXT"], "TEXT"),
        ("Message", ["message", "MESSAGE"], "message"),
        ("Body", ["text", "body"], "body"),
        ("body", ["Body", "text"], "Body"),
    ],
)
def test_a_name_counts_before_its_other_spellings(trained: str | None, names: list[str], read: str) -> None:
    run = bert(SequenceClassifier(labels=2))
    column = "data.text=0 data.label=1" if trained is None else f"data.text={trained} data.label=class"
    recipe = qkv.Recipe.load("classify", ["data.kind=labelled", "data.path=x.csv", *column.split()])
    object.__setattr__(run, "recipe", recipe)
    with Path("in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, [f"words of {name}" for name in names]])
    assert read_table(Path("in.csv"), run, "predict").inputs == [f"words of {read}"]


def test_titles_names_again_and_json_in_a_csv_are_read_past_and_said(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i},film {i} was good\n" for i in range(30))
    Path("again.csv").write_text(f"My films\nid,message\n{rows}id,message\n{rows}")
    assert main(["predict", str(runs / "classifier"), "again.csv", "--out", "out.csv"]) == 0
    said = capsys.readouterr().err
    assert "1 row with the column names again left out" in said and "line 1 ('My films')" in said
    frame = pandas.read_csv("out.csv")
    assert (
        frame["message"].tolist() == [f"film {i} was good" for i in range(30)] * 2 and frame["prediction"].notna().all()
    )
    for name in ("json.csv", "json.txt"):
        Path(name).write_text("".join(json.dumps({"message": f"film {i}"}) + "\n" for i in range(3)))
        assert main(["predict", str(runs / "classifier"), name, "--out", "out.csv", "--overwrite"]) == 0
        assert f"{name} holds JSON, whatever its name says" in capsys.readouterr().err
        assert pandas.read_csv("out.csv")["message"].tolist() == ["film 0", "film 1", "film 2"]


@pytest.mark.parametrize("command", ["predict", "classify"])
def test_a_text_with_line_ends_is_printed_as_one_line(
    command: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text('text\n"ab\ncd"\nab\n')
    assert main([command, str(runs / "classifier"), "in.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("\t")[2] for line in lines] == ["ab cd", "ab"]


def test_rows_that_are_no_examples_are_told(runs: Path) -> None:
    rows = [f"film {n} is good,{n}" for n in range(30)]
    Path("in.csv").write_text("\n".join(["message,note", *rows, "Total,30", "", "Source: us"]))
    notes = "\n".join(read_table(Path("in.csv"), qkv.load(runs / "classifier"), "predict", ["message"]).notes)
    assert "line 32 ('Total') of 'in.csv' looks like a row of totals" in notes
    assert "line 34 ('Source: us') of 'in.csv' looks like a footnote" in notes


def test_sequences_of_a_fasta_file_are_read_beside_their_names(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.fa").write_text(">first of two\nMKV\nAA\n>second\nGG\n")
    assert main(["predict", str(runs / "classifier"), "in.fa", "--out", "out.csv"]) == 0
    assert "2 sequences of in.fa" in capsys.readouterr().err
    frame = pandas.read_csv("out.csv")
    assert frame["name"].tolist() == ["first", "second"] and frame["sequence"].tolist() == ["MKVAA", "GG"]
    assert main(["predict", str(runs / "classifier"), "in.fa", "--column", "name"]) == 2
    assert "its only input column is 'sequence'; leave out --column name" in capsys.readouterr().err


def test_what_the_first_row_is_read_as_is_told_and_overruled(runs: Path) -> None:
    """A column of texts alone, whose name may as well be a short text."""
    run = qkv.load(runs / "classifier")
    Path("in.csv").write_text("Satz\n" + "".join(f"this film number {i} is good\n" for i in range(20)))
    table = read_table(Path("in.csv"), run, "predict")
    assert len(table.rows) == 21
    assert any(
        "is read as data; that is not certain, and --column Satz reads it as names" in one for one in table.notes
    )
    table = read_table(Path("in.csv"), run, "predict", ("Satz",))
    assert len(table.rows) == 20 and table.inputs[0] == "this film number 0 is good"
    Path("in.csv").write_text("body_of_it\n" + "".join(f"this film number {i} is good, really.\n" for i in range(20)))
    Path("in.tsv").write_text("body_of_it\n" + "".join(f"this film number {i} is good, really.\n" for i in range(20)))
    table = read_table(Path("in.tsv"), run, "predict")
    assert len(table.rows) == 20 and any("--column 0 reads it as data" in one for one in table.notes)
    table = read_table(Path("in.tsv"), run, "predict", ("0",))
    assert table.inputs[0] == "body_of_it" and any(
        "--column body_of_it reads it as names" in one for one in table.notes
    )


def test_ragged_rows_columns_without_names_and_marks_that_are_text_are_told(runs: Path) -> None:
    run = qkv.load(runs / "classifier")
    Path("in.csv").write_text("id,text,,\n1,good film,,\n2,,,\n3\n4,bad film,,,\n")
    table = read_table(Path("in.csv"), run, "predict")
    assert table.names == ("id", "text", "Unnamed: 2", "Unnamed: 3")
    assert [row["text"] for row in table.rows] == ["good film", "", "", "bad film"]
    assert any(
        "1 row of the first 4 of 'in.csv' with fewer cells than the 4 columns (line 4)" in n for n in table.notes
    )
    Path("none.csv").write_text("\n\n  \n")
    with pytest.raises(ValueError, match=r"none\.csv' holds no rows"):
        read_table(Path("none.csv"), run, "predict")
    Path("in.tsv").write_text('text\tid\n"Go," he said.\t1\nfine\t2\n')
    assert any(
        "quotation marks around cells of in.tsv are read as text" in n
        for n in read_table(Path("in.tsv"), run, "predict").notes
    )
