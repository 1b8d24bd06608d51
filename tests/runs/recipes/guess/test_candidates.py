"""Tables with a column for each candidate of a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize(
    ("names", "answers", "right"),
    [
        ("question,A,B,C,D,answer", "ABCD", [0, 1, 2, 3]),
        ("id,sentence,option0,option1,label", "01", [0, 1]),
        ("goal,sol1,sol2,label", "01", [0, 1]),
        ("stem,choice_a,choice_b,correct_answer", "ba", [1, 0]),
    ],
)
def test_columns_numbered_alike_are_candidates(names: str, answers: str, right: list[int], tmp_path: Path) -> None:
    path, columns = tmp_path / "choices.csv", names.split(",")
    rows = [[f"word {place} of row {i}" for place in range(len(columns))] for i in range(40)]
    for i, row in enumerate(rows):
        row[-1] = answers[i % len(answers)]
        row[0] = str(i) if columns[0] == "id" else row[0]
    path.write_text(names + "\n" + "".join(",".join(row) + "\n" for row in rows))
    found = guess(path)
    assert found.recipe == "choose" and any("hold candidates" in said for said in found.seen)
    data = Recipe.load(found.recipe, [*found.settings]).data
    one = next(one for one in data.examples("train", shuffle=False) if one["answer"] == right[0])
    assert len(one["choices"]) == len([name for name in columns if name[-1] in "ABCDab012" and name != "id"])
    assert {one["answer"] for one in data.examples("train")} == set(right)


def test_answers_that_count_from_1_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("sentence,option1,option2,answer\n" + "".join(f"a b {i},c,d,{1 + i % 2}\n" for i in range(40)))
    with pytest.raises(ValueError, match="the right one by its number from 1; number the candidates from 0"):
        guess(path)


@pytest.mark.parametrize(("name", "step"), [("", 1), ("tweet_id", 7), ("PassengerId", 3)])
def test_numbers_of_rows_are_no_score(name: str, step: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"text": "words number {i}", "{name or "n"}": {step * i}}}\n' for i in range(40)))
    found = guess(path)
    assert found.recipe == "lm" and any(f"{name or 'n'} is not used: its values" in said for said in found.seen)


def test_a_column_with_the_split_of_each_row_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = (f"words number {i},{'a' if i % 2 else 'b'},{'Train' if i < 30 else 'test'}\n" for i in range(40))
    path.write_text("text,label,subset\n" + "".join(rows))
    said = " ".join(guess(path).seen)
    assert (
        "subset tells the split of each row (test, train), and is not read: training takes rows of every split" in said
    )


@pytest.mark.parametrize("names", ["anchor,positive,negative", "query,pos"])
def test_triples_are_for_embedders(names: str, tmp_path: Path) -> None:
    path, width = tmp_path / "t.csv", names.count(",") + 1
    cells = (",".join(f"word {place} of text {i}" for place in range(width)) for i in range(40))
    path.write_text("\n".join([names, *cells]) + "\n")
    found = guess(path)
    text, pair = names.split(",")[:2]
    assert found.recipe == "similarity" and "objective=contrastive" in found.settings
    assert {f"data.text={text}", f"data.pair={pair}"} <= set(found.settings)
    assert len(names) < 20 or "of 3 columns of text the first two are used, and not negative" in found.seen
    Recipe.load(found.recipe, [*found.settings])
