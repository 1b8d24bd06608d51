"""`qkv train FILE`: the guess is shown as a command, asked about, overridden, and never trained unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.cli import main
from qkv.runs.recipes.recipe import Recipe, argument_of


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a review of {i} words,{'good' if i % 2 else 'bad'}\n" for i in range(60))
    Path("reviews.csv").write_text("text,label\n" + rows)
    return Path("reviews.csv")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What would have been trained."""
    calls: list[tuple[str, list[str]]] = []

    def train(recipe: str, settings: list[str], *_: object) -> int:
        calls.append((recipe, settings))
        return 0

    monkeypatch.setattr("qkv.cli.train._train", train)
    return calls


GUESSED = ["data.kind=labelled", "data.path=reviews.csv", "data.text=text", "data.label=label"]


def test_without_a_terminal_the_command_is_printed_and_nothing_is_trained(
    table: Path, trained: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(table)]) == 2
    told = capsys.readouterr().err
    assert f"qkv train classify {' '.join(GUESSED)}" in told and "add --yes" in told
    assert "60 rows of 2 columns: text ('a review of 0 words'), label ('bad')" in told
    assert not trained


def test_yes_trains_and_settings_replace_what_was_guessed(table: Path, trained: list[tuple[str, list[str]]]) -> None:
    assert main(["train", str(table), "--yes", "data.label=text", "--max-steps", "3"]) == 0
    assert trained == [("classify", [*GUESSED[:-1], "data.label=text", "training.max_steps=3"])]


@pytest.mark.parametrize(("answer", "status"), [(True, 0), (False, 2)])
def test_in_a_terminal_it_asks(
    answer: bool, status: int, table: Path, trained: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: answer)
    assert main(["train", str(table)]) == status
    assert trained == ([("classify", GUESSED)] if answer else [])


def test_a_recipe_a_yaml_file_and_a_run_keep_their_meaning(
    table: Path, trained: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("reverse").mkdir()
    Path("run").mkdir()
    Path("run/recipe.yaml").touch()
    Path("mine.yaml").touch()
    for name in ("reverse", "run", "mine.yaml", "nowhere"):
        assert main(["train", name]) == 0
    assert [name for name, _ in trained] == ["reverse", "run", "mine.yaml", "nowhere"]
    assert "reverse is a recipe; for the file or folder of that name give ./reverse" in capsys.readouterr().err


def test_a_recipes_name_is_the_recipe_beside_a_run_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat").mkdir()
    Path("chat/recipe.yaml").write_text(Recipe.load("reverse").to_yaml(), encoding="utf-8")
    assert Recipe.load("chat").name == "chat"
    assert Recipe.load("./chat").name == Recipe.load(Path("chat")).name == "reverse"
    assert argument_of(Path("chat")) == "./chat" and argument_of(Path("runs/chat")) == "runs/chat"


@pytest.fixture
def parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parallel texts whose names tell no split."""
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("".join(f"the cat has {i} legs\n" for i in range(60)))
    Path("a.de").write_text("".join(f"die Katze hat {i} Beine\n" for i in range(60)))


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize(
    "words", [["a.en", "a.de", "seed=3"], ["a.en", "seed=3", "a.de"], ["a.en", "a.de", "--seed", "3"]]
)
def test_two_parallel_files_are_given_one_after_the_other(
    words: list[str], trained: list[tuple[str, list[str]]]
) -> None:
    assert main(["train", *words, "--yes"]) == 0
    assert trained == [("translate", ["data.source=a.en", "data.target=a.de", "seed=3"])]


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.en", "data.path=a.de"], "to use both: qkv train a.en a.de"),
        (["a.en", "data={path: a.de}"], "'a.en' and 'data={path: a.de}' both name the data"),
        (["a.en", "a.de", "data.target=b.de"], "'a.de' and 'data.target=b.de' both name the data"),
        (["a.en", "b.de"], "there is no file of that name"),
        (["a.en", "a.en"], "a file is given twice"),
        (["a.en", "."], "is a folder or an archive, which is read alone"),
        (["translate", "a.en", "a.de"], "a file of data is given first, in place of a recipe"),
    ],
)
def test_a_file_that_would_not_be_read_is_refused(
    words: list[str], said: str, trained: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--yes"]) == 2
    assert said in capsys.readouterr().err
    assert not trained


@pytest.mark.usefixtures("parallel")
def test_a_file_that_a_setting_names_again_is_read(trained: list[tuple[str, list[str]]]) -> None:
    assert main(["train", "a.en", "data={kind: text, path: a.en}", "--yes"]) == 0
    assert trained == [("lm", ["data={kind: text, path: a.en}"])]


def test_a_setting_of_the_data_is_written_in_full(
    table: Path, trained: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(table), "encoding=cp1252", "--yes"]) == 2
    assert "encoding is a setting of the data; write data.encoding='cp1252'" in capsys.readouterr().err
    assert not trained
