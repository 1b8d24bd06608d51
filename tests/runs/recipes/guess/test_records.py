"""Records are read by what is in them, whatever the name of their file: conversations, preferences, questions, tables."""

from __future__ import annotations

import gzip
import json
import random
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from qkv.data.classes import class_name
from qkv.data.source import Skipped
from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe

N = 40
TEXTS = [
    f"the {color} {animal} sees {n} trees" for n in range(10) for color in ("red", "blue") for animal in ("cat", "dog")
]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


REVIEWS = [{"text": text, "label": "good" if i % 3 else "bad"} for i, text in enumerate(TEXTS)]
TALKS = [user(text) + assistant(f"{text}?") for text in TEXTS]
PREFERENCES = [{"prompt": text, "chosen": f"yes, {text}", "rejected": f"no, {text}"} for text in TEXTS]


def lines(path: Path, rows: list[Any]) -> Path:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def parquet(path: Path, rows: list[Any]) -> Path:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pandas.DataFrame(rows).to_parquet(path)
    return path


def table(path: Path, rows: list[Any], **options: Any) -> Path:
    pandas.DataFrame(rows).to_csv(path, index=False, **options)
    return path


def first_example(command: str) -> dict[str, Any]:
    recipe, *settings = shlex.split(command)[2:]
    return next(iter(Recipe.load(recipe, settings).data.examples("train")))


# -- conversations ----------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Path], Path]] = {
    "JSONL": lambda folder: lines(folder / "a.jsonl", [{"messages": json.dumps(talk)} for talk in TALKS]),
    "gzip": lambda folder: lines(folder / "a.jsonl.gz", [{"messages": json.dumps(talk)} for talk in TALKS]),
    "Parquet": lambda folder: parquet(folder / "a.parquet", [{"messages": json.dumps(talk)} for talk in TALKS]),
    "CSV": lambda folder: table(folder / "a.csv", [{"id": 1, "messages": json.dumps(talk)} for talk in TALKS]),
    "TSV": lambda folder: table(folder / "a.tsv", [{"messages": json.dumps(talk), "id": 1} for talk in TALKS], sep="\t"),
    "Python's lists in CSV": lambda folder: table(folder / "a.csv", [{"id": 1, "messages": talk} for talk in TALKS]),
    "text": lambda folder: table(folder / "a.txt", [{"id": 1, "messages": json.dumps(talk)} for talk in TALKS]),
    "another name": lambda folder: lines(folder / "a.jsonl", [{"talk": json.dumps(talk)} for talk in TALKS]),
    "ShareGPT": lambda folder: lines(
        folder / "a.jsonl",
        [{"conversations": json.dumps([{"from": "human", "value": a["content"]}, {"from": "gpt", "value": b["content"]}])}
         for a, b in TALKS],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_messages_that_are_stored_as_text_are_conversations(form: str, tmp_path: Path) -> None:
    found = guess(FORMS[form](tmp_path))
    assert found.recipe == "chat"
    recipe = Recipe.load(found.recipe, found.settings)
    assert [json.loads(example["messages"]) in TALKS for example in recipe.data.examples("train")].count(False) == 0


def test_half_a_character_within_messages_as_text_is_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"messages": json.dumps(user("\ud83d") + assistant("x"))}] * 30)
    with pytest.raises(ValueError, match=r"line 1: a message has half of a character \(\\ud83d\)"):
        first_example(guess(path).command())


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("names", [("instruction", "input", "output"), ("instruction", "context", "response")])
def test_instructions_are_conversations_also_without_an_input(
    names: tuple[str, ...], suffix: str, tmp_path: Path
) -> None:
    rows = [
        dict(zip(names, (text, "" if i % 2 else "a note", text[::-1]), strict=True)) for i, text in enumerate(TEXTS)
    ]
    path = (lines if suffix == "jsonl" else table)(tmp_path / f"a.{suffix}", rows)
    found = guess(path)
    assert found.recipe == "chat"
    examples = list(Recipe.load(found.recipe, found.settings).data.examples("train"))
    asked = {json.loads(example["messages"])[0]["content"] for example in examples}
    assert len(examples) > 20 and asked <= {*TEXTS, *(f"{text}\na note" for text in TEXTS)}


# -- preferences and prompts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: lines(folder / "a.jsonl", PREFERENCES),
        lambda folder: table(folder / "a.csv", PREFERENCES),
        lambda folder: parquet(folder / "a.parquet", PREFERENCES),
        lambda folder: lines(folder / "a.jsonl", [{k: row[k] for k in ("chosen", "rejected")} for row in PREFERENCES]),
        lambda folder: lines(
            folder / "a.jsonl",
            [{k: user(row["prompt"]) + assistant(row[k]) for k in ("chosen", "rejected")} for row in PREFERENCES],
        ),
    ],
)
def test_preferences_are_told_and_the_command_learns_the_chosen_answers(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="preferences, a chosen and a rejected answer, and no recipe learns") as caught:
        guess(write(tmp_path))
    (command,) = re.findall("`(qkv train .*?)`", str(caught.value).partition("known are")[0])
    example = first_example(command)
    said = str(example.get("messages", example.get("target", example.get("text"))))
    assert "yes, " in said and "no, " not in said


def test_conversations_in_two_fields_are_no_conversation_of_the_first(tmp_path: Path) -> None:
    rows = [
        {"prompt": user(row["prompt"]), "chosen": assistant("x"), "rejected": assistant("y")} for row in PREFERENCES
    ]
    with pytest.raises(ValueError, match="join each prompt and its chosen messages in one list `messages`"):
        guess(lines(tmp_path / "a.jsonl", rows))
    rows = [{"prompt": user(row["prompt"]), "completion": assistant("x")} for row in PREFERENCES]
    with pytest.raises(ValueError, match="divided among prompt and completion; join them in one list `messages`"):
        guess(lines(tmp_path / "b.jsonl", rows))


def test_prompts_with_completions_labels_or_scores(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": i, "prompt": text, "completion": text[::-1]} for i, text in enumerate(TEXTS)]
    for path in (lines(tmp_path / "a.jsonl", rows), table(tmp_path / "a.csv", rows)):
        found = guess(path)
        assert found.recipe == "lm" and {"data.prompt=prompt", "data.answer=completion"} <= set(found.settings)
        assert first_example(found.command())["source"] in TEXTS
    for i, row in enumerate(rows):
        row["label"] = i % 2 == 0
    found = guess(lines(tmp_path / "kto.jsonl", rows))
    assert found.recipe == "classify" and any("not to give them (as KTO does)" in line for line in found.seen)
    scored = [{"prompt": row["prompt"], "response": row["completion"], "score": i / 7} for i, row in enumerate(rows)]
    assert {"task=regress", "data.pair=response"} <= set(guess(lines(tmp_path / "rm.jsonl", scored)).settings)


# -- whatever the name says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.json", "a.dat", "a.txt.gz"])
def test_json_is_read_as_such_whatever_the_name(name: str, tmp_path: Path) -> None:
    found = guess(lines(tmp_path / name, REVIEWS))
    assert found.recipe == "classify" and first_example(found.command())["label"] in ("good", "bad")
    if name.endswith(".json"):
        return
    assert any(f"{name} holds JSON, whatever its name says" in line for line in found.seen)
    whole = tmp_path / f"whole-{name.removesuffix('.gz')}"
    whole.write_text(json.dumps(REVIEWS, indent=1))
    assert first_example(guess(whole).command())["label"] in ("good", "bad")


def test_one_list_in_a_jsonl_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(REVIEWS, indent=1))
    assert first_example(guess(tmp_path / "a.jsonl").command())["label"] in ("good", "bad")


@pytest.mark.parametrize(("sep", "named"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs")])
def test_a_table_in_a_text_file_is_read_as_one_if_it_has_names(sep: str, named: str, tmp_path: Path) -> None:
    found = guess(
        table(tmp_path / "a.txt", [row | {"text": f"{n} {row['text']}"} for n in range(5) for row in REVIEWS], sep=sep)
    )
    assert found.recipe == "classify" and first_example(found.command())["label"] in ("good", "bad")
    (said,) = [line for line in found.seen if f"a.txt is read as a table of 2 cells, separated by {named}" in line]
    assert first_example(re.findall("`(.*?)`", said)[0])["text"].count(sep) > 1  # as running text


def test_text_that_looks_like_a_table_without_names_stays_text_with_a_note(tmp_path: Path) -> None:
    found = guess(table(tmp_path / "a.txt", REVIEWS, header=False))
    (said,) = [line for line in found.seen if "look like rows of 2 cells, separated by commas" in line]
    assert found.recipe == "lm" and first_example(re.findall("`(.*?)`", said)[0])["label"] in ("good", "bad")
    prose = tmp_path / "prose.txt"
    prose.write_text("".join(f"{text}{', then' * (i % 3)}.\n" for i, text in enumerate(TEXTS)))
    assert guess(prose).seen == ("plain text, 40 lines",)
    numbers = tmp_path / "flowers.data"
    numbers.write_text("".join(f"{i % 7}.{i % 10},3.{i % 9},{'setosa' if i % 2 else 'virginica'}\n" for i in range(60)))
    found = guess(numbers)
    (said,) = [
        line for line in found.seen if "look like rows of 3 cells, separated by commas, for which nothing is" in line
    ]
    assert found.recipe == "lm" and "that is neither pairs, labels, scores nor numbers" in said


@pytest.mark.parametrize("sep", [",", ";", "|"])
def test_a_tsv_without_tabs_is_read_by_its_separator(sep: str, tmp_path: Path) -> None:
    found = guess(table(tmp_path / "a.tsv", REVIEWS, sep=sep))
    assert first_example(found.command())["label"] in ("good", "bad")
    assert any("no line of a.tsv that was looked at has a tab" in line for line in found.seen)


def test_one_column_of_text_in_a_csv_is_a_language_model(tmp_path: Path) -> None:
    found = guess(table(tmp_path / "a.csv", [{"text": f"{text}, really"} for text in TEXTS]))
    assert found.recipe == "lm" and first_example(found.command())["text"].endswith(", really")
    (tmp_path / "b.csv").write_text("text\n" + "".join(f"{text}, really\n" for text in TEXTS))
    with pytest.raises(
        ValueError, match=r"more cells than names; if they are one text each, data\.sep=tab reads a line"
    ):
        guess(tmp_path / "b.csv")
    found = guess(tmp_path / "b.csv", settings=["data.sep=tab"])
    assert first_example(found.command(["data.sep=tab"]))["text"].endswith(", really")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"data": REVIEWS, "version": 1}, "its records are in the list 'data' of one object; save that list"),
        ({"text": TEXTS, "label": TEXTS}, "it holds columns; write records, with pandas as `frame.to_json"),
        ({"columns": ["text"], "index": [0], "data": [["x"], ["y"]]}, "it holds columns"),
        (TEXTS, "it is a list, but not of objects"),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_json_of_another_form_is_told(value: Any, said: str, indent: int | None, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value, indent=indent))
    with pytest.raises(ValueError, match=said):
        guess(tmp_path / "a.json")


def test_objects_over_several_lines_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row, indent=1) for row in REVIEWS))
    with pytest.raises(ValueError, match=r"line 1 is not valid JSON: .*; a value has to be on one line"):
        guess(tmp_path / "a.jsonl")


def test_questions_in_a_csv_need_the_places_of_their_answers(tmp_path: Path) -> None:
    rows = [{"context": text, "question": "what?", "answer": "sees", "start": text.index("sees")} for text in TEXTS]
    rows[3] |= {"answer": "", "start": ""}
    found = guess(table(tmp_path / "a.csv", rows))
    examples = list(Recipe.load(found.recipe, found.settings).data.examples("train"))
    assert found.recipe == "answer" and {example["answers"] for example in examples} <= {("sees",), ("",)}
    with pytest.raises(ValueError, match="no field `start` with the number of the character"):
        guess(table(tmp_path / "b.csv", [{k: row[k] for k in ("context", "question", "answer")} for row in rows]))


# -- what other programs write ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"ARROW1\x00\x00\xff\xff" + bytes(range(256)) * 9, b"%PDF-1.4\n" + bytes(range(256)) * 9, b"\x80\x04" * 99],
)
@pytest.mark.parametrize("name", ["a.feather", "a.txt", "a.csv"])
def test_what_is_no_text_is_no_text_in_latin_1(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=r"it is not text; save a table as|is an Arrow or Feather file|is a PDF document"
    ):
        guess(tmp_path / name)


def test_utf_16_without_a_mark_is_told_and_read_as_it_says(tmp_path: Path) -> None:
    rows = [{"text": f"{row['text']} \u00e4", "label": row["label"]} for row in REVIEWS]
    path = table(tmp_path / "a.csv", rows, encoding="utf-16-le")
    with pytest.raises(ValueError, match=r"give data\.encoding=utf-16-le, if it is UTF-16") as caught:
        guess(path)
    setting = re.findall("data.encoding=[a-z0-9-]+", str(caught.value))
    assert first_example(guess(path, settings=setting).command(setting))["label"] in ("good", "bad")
    with pytest.raises(ValueError, match="zero bytes"):  # nor is it Latin-1 for a reader
        first_example(
            f"qkv train classify data.kind=labelled data.path={path} data.text=0 data.label=1 data.encoding=latin-1"
        )


def test_a_table_in_markdown_is_text(tmp_path: Path) -> None:
    rows = "".join(f"| {row['text']} | {row['label']} |\n" for row in REVIEWS)
    (tmp_path / "a.txt").write_text(f"| text | label |\n|------|:----:|\n{rows}")
    assert guess(tmp_path / "a.txt").recipe == "lm"


def test_fields_with_lists_that_are_not_read_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": text, "labels": ["a", "b"], "meta": {"n": 1}} for text in TEXTS])
    assert {f"40 values of {name} are lists or objects, which are not read" for name in ("labels", "meta")} <= set(
        guess(path).seen
    )


@pytest.mark.parametrize("names", ["user,assistant", "\u6587,\u7c7b"])
def test_names_of_roles_and_single_characters_are_names(names: str, tmp_path: Path) -> None:
    if names == "user,assistant":
        rows = [f"{text},{text[::-1]}" for text in TEXTS]
    else:
        draw = random.Random(0)
        rows = [f"{''.join(draw.choices('猫狗房子看见红色在了的', k=9))},{'好坏'[i % 2]}" for i in range(80)]
    (tmp_path / "a.csv").write_text("\n".join([names, *rows]) + "\n", encoding="utf-8")
    assert any(f"read as names, {names.replace(',', ', ')}" in line for line in guess(tmp_path / "a.csv").seen)


def test_one_empty_conversation_does_not_hide_the_others(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"messages": talk if i else []}) + "\n" for i in range(20)))
    found = guess(path)
    assert found.recipe == "chat" and "1 value of 'messages' that was looked at holds no messages" in found.seen[1]


def test_lists_in_a_column_of_classes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = ({"text": f"a long text {i}", "label": ["x"] if i % 6 == 5 else f"c{i % 2}"} for i in range(60))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = "\n".join(guess(path).seen)
    assert (
        "10 values of label that were looked at are no texts or whole numbers: ['x'] (line 6), ['x'] (line 12)" in seen
    )
    assert (
        "training refuses them: correct them, or skip their rows with task.on_error=skip" in seen
        and "missing" not in seen
    )


def test_labels_of_several_types_and_texts_that_are_none_are_told_as_training_reads_them(tmp_path: Path) -> None:
    labels = (1, "1", 1.0, True, "true", 0)
    rows = [
        {"text": None if i % 12 == 0 else i if i == 7 else f"a long text {i}", "label": labels[i % 6]}
        for i in range(60)
    ]
    path = lines(tmp_path / "a.jsonl", rows)
    found = guess(path)
    seen = "\n".join(found.seen)
    assert "5 of 60 cells of text that were looked at hold no text (null or empty); their rows are skipped" in seen
    assert "1 value of text that were looked at is no texts: 7 (line 8); their rows are skipped" in seen
    assert 'label holds numbers (30), texts (20), true or false (10): 1, "1" and 1.0 are one class' in seen
    recipe = Recipe.load(found.recipe, found.settings)
    table = recipe.data.open("train")
    read = [table[i] for i in range(len(table))]
    assert {class_name(one["label"]) for one in read if not isinstance(one, Skipped)} == {"0", "1", "true"}
    assert "one of 3: 1 (30), true (20), 0 (10)" in seen
    assert sum(isinstance(one, Skipped) for one in read) == 6


def test_fractions_as_classes_of_json_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": f"a long text {i}", "label": i % 2 or 0.5} for i in range(60)])
    assert "30 values of label that were looked at are no texts or whole numbers: 0.5 (line 1)" in "\n".join(
        guess(path).seen
    )


def test_labels_that_are_nan_are_missing_and_lines_of_spaces_are_no_table(tmp_path: Path) -> None:
    rows = [{"text": f"a long text {i}", "label": "ab"[i % 2] if i % 6 else float("nan")} for i in range(60)]
    seen = "\n".join(guess(lines(tmp_path / "a.jsonl", rows)).seen)
    assert "10 of 60 cells of label that were looked at are missing (nan)" in seen
    assert "refuses" not in seen and "holds" not in seen
    (tmp_path / "b.csv").write_text("\n\n  \n")
    with pytest.raises(ValueError, match="it holds no rows"):
        guess(tmp_path / "b.csv")


@pytest.mark.parametrize("options", [False, True])
def test_what_an_annotator_rejected_is_told_with_pandas_line_that_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = []
    for n in range(60):
        label = ("POS", "NEG")[n % 2]
        row = {"text": f"a film of the number {n} is seen", "answer": "accept" if n % 5 else "ignore"}
        more = {"options": [{"id": one, "text": one} for one in ("POS", "NEG")], "accept": [label]}
        rows.append({**row, **(more if options else {"label": label})})
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        ValueError, match=r"an annotator's judgement of each label .*\(accept: 48; ignore: 12\)"
    ) as error:
        guess("a.jsonl")
    exec(f"import pandas; {str(error.value).split('`')[1]}")
    found = guess("accepted.jsonl")
    said = "".join(found.seen)
    assert found.recipe == "classify" and "POS (24)" in said and "NEG (24)" in said


def test_options_of_an_annotator_are_no_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [{"id": "pos", "text": "pos"}, {"id": "neg", "text": "neg"}]
    rows = [{"text": f"a film number {i}", "options": options, "accept": [options[i % 2]["id"]]} for i in range(30)]
    path = tmp_path / "prodigy.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="those that were chosen in the field accept, as Prodigy exports them") as told:
        guess(path)
    monkeypatch.chdir(tmp_path)
    exec(str(told.value).partition("`")[2].partition("`")[0], {"pandas": pandas})  # the advice works
    assert "data.label=label" in guess(tmp_path / "chosen.jsonl").settings
    path.write_text("\n".join(json.dumps({"text": "a b", "choices": options, "answer": 0}) for _ in range(30)))
    with pytest.raises(ValueError, match="the candidates in 'choices' are objects; write a list of their texts"):
        guess(path)
