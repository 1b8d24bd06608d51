"""`qkv predict`: a line for each input or its JSON, and what can't be read."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from short_runs import PICTURES, TEXTS, Train, files

from qkv.cli import main
from qkv.runs.inference.run import Run


def test_a_picture_with_its_boxes_is_a_file(
    short_run: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = short_run("detect", *PICTURES, "data.size=[40,56]")
    paths, out = files(run, tmp_path), tmp_path / "deep" / "out"
    asked = ["predict", str(run.path), "--threshold", "0.2", "--json", "--out", str(out)]
    assert main([*asked, *map(str, paths[:2])]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(path.name for path in out.iterdir()) == ["0.boxes.svg", "1.boxes.svg"]
    for line, path in zip(lines, sorted(out.iterdir()), strict=True):
        drawn = ElementTree.parse(path).getroot()
        assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == len(line["objects"])
    before = sorted(tmp_path.rglob("*"))
    for read, written, said in (
        (paths[0].parent, paths[0].parent, "is the directory of the input, which stays as it is"),
        (paths[0].parent, paths[0].parent / "new", "lies in the directory of the input"),
        (paths[0], paths[0].parent, "is the directory of the input, which stays as it is"),
        (paths[0], run.path, "is a run, and no other files are written into it"),
    ):
        assert main(["predict", str(run.path), str(read), "--out", str(written), "--overwrite"]) == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_prints_a_line_an_input_or_its_json(short_run: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = short_run("tag", "data.train=300", "task.longest=16")
    texts = ["Kavera Lon works here .", "It rained ."]
    assert main(["predict", str(run.path), *texts]) == 0
    assert capsys.readouterr().out.splitlines() == [one.text for one in run.predict(texts)]
    assert main(["predict", str(run.path), "--json", *texts]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["input"] == texts[0] and first["words"] == texts[0].split() and len(first["tags"]) == 5


@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_a_line_that_can_not_be_read_is_named_and_the_others_are_answered(
    json_option: tuple[str, ...],
    short_run: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = short_run("answer", "data.train=300", "task.longest=40", "task.overlap=8", "task.margin=0.0")
    boxes = short_run("detect", *PICTURES, "data.size=[40,56]")
    picture = str(files(boxes, tmp_path)[0])
    for run, good, bad in ((answers, "who?\tAnn.", "who?"), (boxes, picture, "no.png")):
        lines = "\n".join([good, bad, "", good]).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        assert main(["predict", str(run.path), *json_option]) == 0
        told = capsys.readouterr()
        assert len(told.err.splitlines()) == 1
        assert f"warning: line 2, {bad!r}, is not answered: " in told.err
        text = run.predict([good])[0].text
        if not json_option:
            assert told.out == f"{text}\n\n\n{text}\n"
            continue
        first, *between, last = map(json.loads, told.out.splitlines())
        assert first == last and first["input"] == good and len(first) > 1
        assert between == [{"input": bad}, {"input": ""}]


def test_what_can_not_be_read_is_one_sentence(
    short_run: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = short_run("tag", "data.train=300", "task.longest=16")
    answers = short_run("answer", "data.train=300", "task.longest=40", "task.overlap=8", "task.margin=0.0")
    boxes = short_run("detect", *PICTURES, "data.size=[40,56]")
    choices = short_run("choose", *TEXTS)
    picture = str(files(boxes, tmp_path)[0])
    (tmp_path / "text.png").write_text("no picture")
    mistakes: list[tuple[Run, list[str], str]] = [
        (tags, ["a", "--out", str(tmp_path / "out")], "these predictions have no files"),
        (answers, ["who?\tAnn.", "who?"], "text 2 is 'who?', and this run reads QUESTION<tab>CONTEXT"),
        (answers, ["who?\t "], "QUESTION<tab>CONTEXT"),
        (choices, ["who?\tAnn"], "text 1 is 'who?\\tAnn', and this run reads CONTEXT<tab>CHOICE<tab>CHOICE"),
        (boxes, ["no.png"], "there is no file 'no.png'"),
        (boxes, [str(tmp_path / "text.png")], "can't be read as a picture"),
        (tags, ["a", "--threshold", "0.7"], "predicts without a threshold; leave it out (detectors use it)"),
        (boxes, [picture, "--seed", "1"], "predicts without a seed; leave it out (music uses it)"),
        (boxes, [picture, "--threshold", "2"], "less than or equal to 1"),
        (boxes, [picture, picture, "--out", str(tmp_path / "twice")], "two inputs are named '0'"),
    ]
    for run, given, wanted in mistakes:
        assert main(["predict", str(run.path), *given]) == 2
        said = capsys.readouterr().err
        assert wanted in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert tags.predict("a").fields == tags.predict(["a"])[0].fields
    with pytest.raises(ValueError, match="input 2 is empty"):
        tags.predict(["a", " "])
