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
