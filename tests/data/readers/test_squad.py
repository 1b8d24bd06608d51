"""Questions from files: SQuAD's JSON and JSONL; answers stand where they are said to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.readers.squad import Questions

CONTEXT = "Oslo is in Norway. It rains."


def squad(folder: Path, *answers: dict[str, Any], name: str = "squad.json", **more: Any) -> Questions:
    asked = {"id": "1", "question": "Where is Oslo?", "answers": list(answers), **more}
    file = folder / name
    file.write_text(json.dumps({"data": [{"title": "Oslo", "paragraphs": [{"context": CONTEXT, "qas": [asked]}]}]}))
    return Questions(path=str(file), validation_path=str(file), test_path=str(file))


def lines(folder: Path, *records: dict[str, Any]) -> Questions:
    file = folder / "q.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return Questions(path=str(file), validation_path=str(file), test_path=str(file))


def test_squads_questions_have_all_their_answers(tmp_path: Path) -> None:
    (one,) = squad(tmp_path, {"text": "Norway", "answer_start": 11}, {"text": "in Norway", "answer_start": 8}).examples(
        "test"
    )
    assert (one["question"], one["answers"], one["starts"]) == ("Where is Oslo?", ("Norway", "in Norway"), (11, 8))
    assert one["context"] == CONTEXT


def test_a_question_without_an_answer_has_an_empty_one(tmp_path: Path) -> None:
    (one,) = squad(tmp_path, is_impossible=True).examples("test")
    assert (one["answers"], one["starts"]) == (("",), (0,))
    (one,) = lines(tmp_path, {"context": CONTEXT, "question": "Who?", "answer": None}).examples("test")
    assert one["answers"] == ("",)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (12, "question 1: at 12 the context has 'orway.' and not the answer 'Norway'"),
        (99, "starts at 99, outside of the context, which has 28 characters"),
        (-1, "starts at -1, outside"),
        (None, r"question 1: answers\.0\.answer_start should be a whole number, not None"),
    ],
)
def test_spans_outside_of_their_text_are_named(tmp_path: Path, start: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(squad(tmp_path, {"text": "Norway", "answer_start": start}).examples("test"))


def test_lines_of_json_name_file_and_line(tmp_path: Path) -> None:
    good = {"context": CONTEXT, "question": "Where?", "answer": "Norway", "start": 11}
    found = list(
        lines(tmp_path, good, {"question": "Where?"}, good | {"answer": ["Norway"], "start": [11]}).examples("test")
    )
    assert [one["answers"] for one in found] == [("Norway",), ("Norway",)]
    with pytest.raises(ValueError, match=r"q.jsonl', line 2: at 3 the context"):
        list(lines(tmp_path, good, good | {"start": 3}).examples("test"))
    with pytest.raises(ValueError, match="2 answers in 'answer' and 1 numbers"):
        list(lines(tmp_path, good | {"answer": ["a", "b"]}).examples("test"))


def test_what_is_held_out_are_whole_articles(tmp_path: Path) -> None:
    articles = [
        {"title": f"t{n}", "paragraphs": [{"context": CONTEXT, "qas": [{"question": f"{n} {k}?", "answers": [
            {"text": "Oslo", "answer_start": 0}]} for k in range(4)]}]}
        for n in range(9)
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    source = Questions(path=str(tmp_path / "a.json"))
    of = {split: {one["article"] for one in source.examples(split)} for split in ("train", "validation", "test")}
    assert not of["train"] & of["test"] and not of["test"] & of["validation"]
    assert len(list(source.examples("test"))) == 4


def test_what_is_no_such_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"rows": []}')
    with pytest.raises(ValueError, match="is not a file like SQuAD's"):
        Questions(path=str(tmp_path / "x.json")).table("train")
    (tmp_path / "x.txt").write_text("a question?")
    with pytest.raises(ValueError, match=r"neither .json, .jsonl, .csv nor .tsv"):
        Questions(path=str(tmp_path / "x.txt")).open("train")


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": {"text": ["Norway"], "answer_start": [11]}},  # as `datasets` writes SQuAD
        {"answers": [{"text": "Norway", "answer_start": 11}]},
        {"answers": ["Norway"], "starts": [11]},
        {"answer": "Norway", "start": 11.0},  # of a data frame
    ],
)
def test_answers_are_read_in_the_usual_forms(answers: dict[str, Any], tmp_path: Path) -> None:
    (one,) = lines(tmp_path, {"context": CONTEXT, "question": "Where?"} | answers).examples("test")
    assert (one["answers"], one["starts"]) == (("Norway",), (11,))


def test_a_line_without_a_field_of_answers_is_no_question_without_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: there is no field 'answer'; it has context, question, reply"):
        list(lines(tmp_path, {"context": CONTEXT, "question": "Where?", "reply": "Norway"}).examples("test"))
    (one,) = lines(
        tmp_path, {"context": CONTEXT, "question": "?", "answers": {"text": [], "answer_start": []}}
    ).examples("test")
    assert one["answers"] == ("",)
