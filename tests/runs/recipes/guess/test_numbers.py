"""What the guess says of columns of numbers with other values, and that training then says the same."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.data.readers.time_series import TimeSeries
from qkv.runs.recipes.guess import Guess, guess
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.text_regression.task import scores_of

WORDS = ("the", "red", "blue", "old", "dog", "cat", "house", "river", "sees", "likes")


def table(path: Path, values: Sequence[str], name: str = "score") -> Path:
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", name])
        rows.writerows([" ".join(draw.choices(WORDS, k=draw.randint(4, 9))), value] for value in values)
    return path


def numbers(n: int = 80) -> list[str]:
    draw = random.Random(1)
    return [f"{draw.uniform(0, 5):.2f}" for _ in range(n)]


def said(found: Guess, word: str) -> str:
    return next(line for line in found.seen if word in line)


ODD = ["inf", "1e400", "-inf", "1e39", "5 stars", "2024-01-05", "45%", "$3", "yes"]


@pytest.mark.parametrize("odd", ODD)
def test_a_score_that_is_no_number_is_shown_with_its_line_and_training_refuses_it(odd: str, tmp_path: Path) -> None:
    values = numbers()
    values[20] = odd
    found = guess(table(tmp_path / "t.csv", values))
    assert "task=regress" in found.settings
    assert f"1 of 80 values of score that were looked at is no finite number: {odd!r} (line 22)" in said(
        found, "finite"
    )
    recipe = Recipe.load(found.recipe, found.settings)
    with pytest.raises(ValueError, match=r"line 22: the score is .*, which is no (finite )?number.*task.on_error=skip"):
        scores_of(recipe.task, recipe.data)
    skipping = Recipe.load(found.recipe, [*found.settings, "task.on_error=skip"])
    assert sum(isinstance(score, float) for score in scores_of(skipping.task, skipping.data)) > 0


def test_the_message_of_a_named_column_does_not_ask_for_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "t.csv", [*numbers(), "inf"])
    assert main([*guess(path).command(("--out", str(tmp_path / "run"))).split()[1:]]) == 2
    error = capsys.readouterr().err
    assert (
        "line 82: the score is 'inf', which is no finite number; correct it" in error and "name its column" not in error
    )


@pytest.mark.parametrize(
    ("spell", "what"),
    [
        ("{:.2f}%", "a percent sign"),
        ("${:.2f}", "a currency sign"),
        ("{:.2f} EUR", "a currency sign"),
        ("{:.2f} kg", "a unit"),
        ("1,{:06.2f}", "thousands separators"),
        ("1 234 {:03.0f}", "thousands separators"),
    ],
)
def test_a_column_of_numbers_that_are_spelled_otherwise_is_not_translated_and_said(
    spell: str, what: str, tmp_path: Path
) -> None:
    draw = random.Random(1)
    found = guess(table(tmp_path / "t.csv", [spell.format(draw.uniform(0, 99)) for _ in range(80)]))
    assert found.recipe == "lm"
    assert f"score is not used: its values are numbers with {what}, such as " in said(found, "not used")


def test_quoted_decimal_commas_are_read_and_thousands_are_not(tmp_path: Path) -> None:
    found = guess(table(tmp_path / "d.csv", [value.replace(".", ",") for value in numbers()]))
    assert "data.decimal=','" in found.settings and "commas in score are decimal points" in said(found, "commas")
    draw = random.Random(1)
    found = guess(table(tmp_path / "t.csv", [f"{draw.randint(1000, 99999):,}" for _ in range(80)]))
    assert found.recipe == "lm" and "thousands separators" in said(found, "not used")


def test_points_that_may_separate_thousands_are_said(tmp_path: Path) -> None:
    draw = random.Random(1)
    values = [f"{draw.randint(1000, 99999):,}".replace(",", ".") for _ in range(80)]
    assert "if they separate thousands" in said(guess(table(tmp_path / "t.csv", values)), "points")
    assert not any("thousands" in line for line in guess(table(tmp_path / "u.csv", numbers())).seen)


def test_other_values_beside_numbered_classes_are_shown(tmp_path: Path) -> None:
    draw = random.Random(1)
    values = [str(draw.randint(1, 5)) for _ in range(80)]
    values[7] = "5 stars"
    assert "'5 stars' (line 9)" in said(guess(table(tmp_path / "t.csv", values, "stars")), "classes beside the numbers")


def test_a_rating_with_decimals_is_a_score(tmp_path: Path) -> None:
    assert "data.score=rating" in guess(table(tmp_path / "t.csv", numbers(), "rating")).settings


def test_columns_without_values_and_texts_that_are_empty_are_said(tmp_path: Path) -> None:
    lines = [f"the dog sees house {i},{i % 2}," if i % 10 else f",{i % 2}," for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label,note", *lines]))
    found = guess(tmp_path / "t.csv")
    assert "without a text or number in the rows that were looked at: note" in found.seen
    assert "8 of 80 cells of text that were looked at hold no text (empty); their rows are skipped" in found.seen


@pytest.mark.parametrize("form", ["parquet", "jsonl", "months", "twelve-hours", "true-and-false"])
def test_a_series_is_recognized_in_all_formats(tmp_path: Path, form: str) -> None:
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2020-01-01", periods=80, freq="MS" if form == "months" else "h")
    written = times.strftime({"months": "%Y-%m", "twelve-hours": "%b %d, %Y %I:%M %p"}.get(form, "%Y-%m-%dT%H:%M:%S"))
    frame = pandas.DataFrame({"load": [0.5 * i for i in range(80)], "time": written})
    path = tmp_path / f"s.{form if form in ('parquet', 'jsonl') else 'csv'}"
    if form == "parquet":
        pytest.importorskip("pyarrow")
        frame.assign(time=times).to_parquet(path)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        flag = {"flag": frame.index % 3 == 0} if form == "true-and-false" else {}
        frame[["time", "load"]].assign(**flag).to_csv(path, index=False)
    found = guess(path)
    assert isinstance(found, Guess) and found.recipe == "forecast" and "data.kind=series" in found.settings
    names = {"load", "flag"} if form == "true-and-false" else {"load"}
    assert set(TimeSeries(path=str(path)).values()[1]) == names


def test_too_few_rows_for_a_series_are_told(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("day,load\n" + "".join(f"2024-01-{i + 1:02},{i}.5\n" for i in range(20)))
    with pytest.raises(
        ValueError, match="day has dates, and the others numbers: a series to forecast needs at least 60"
    ):
        guess(tmp_path / "s.csv")


def test_gaps_of_a_series_are_shown(tmp_path: Path) -> None:
    rows = [f"{i},{i * 0.5}" for i in range(200)]
    rows[30], rows[40] = "30,", "40,n/a"
    (tmp_path / "s.csv").write_text("\n".join(["a,b", *rows]))
    found = guess(tmp_path / "s.csv")
    assert "data.gaps=fill" in found.settings
    assert "2 of 200 values of b that were looked at are no finite numbers: '' (line 32), 'n/a' (line 42)" in said(
        found, "gaps"
    )
