"""The question before code from outside qkv runs: what it names, how long an answer holds, and what asks again."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from qkv.cli import consent, main
from qkv.cli.consent import ask, remember
from qkv.core.registry import ADDED_PATHS, import_installed

RECIPE = """
name: outside
imports: [outside_parts.py]
data: {kind: reverse, train: 200, validation: 20, test: 20}
tokenizer: char
model: {preset: transformer, d_model: 16}
objective: sequence-to-sequence
"""


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which answers are remembered."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # no terminal
    return tmp_path / "config" / "qkv" / "imports.json"


def test_without_a_terminal_the_options_that_allow_it_are_named(tmp_path: Path, answers: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    with pytest.raises(
        ValueError, match=r"mine.yaml imports parts, more.py, code from outside qkv; allow it with"
    ) as error:
        ask(["parts", "more.py"], str(recipe))
    assert "qkv --import parts --import more.py …, or qkv --yes …" in str(error.value)
    assert not answers.exists()


def test_what_was_allowed_is_not_asked_again(tmp_path: Path, answers: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    remember(recipe, ["parts"])
    ask(["parts"], str(recipe))
    for where, names in ((recipe, ["parts", "more.py"]), (tmp_path / "other.yaml", ["parts"])):
        with pytest.raises(ValueError, match="code from outside qkv"):
            ask(names, str(where))
    remember(recipe, ["more.py"])
    ask(["parts", "more.py"], str(recipe))
    kept = json.loads(answers.read_text())
    assert list(kept) == [str(recipe.resolve())] and sorted(kept[str(recipe.resolve())]) == ["more.py", "parts"]


def test_a_damaged_file_of_answers_allows_nothing(tmp_path: Path, answers: Path) -> None:
    answers.parent.mkdir(parents=True)
    for content in ("{", "[]"):
        answers.write_text(content)
        with pytest.raises(ValueError, match="code from outside qkv"):
            ask(["parts"], str(tmp_path / "mine.yaml"))


def test_the_answer_in_a_terminal_decides(tmp_path: Path, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return True

    recipe = str(tmp_path / "mine.yaml")
    monkeypatch.setattr(sys, "stderr", Stream())
    monkeypatch.setattr(sys, "stdin", Stream("n\n"))
    with pytest.raises(ValueError, match=r"nothing was imported, but .* needs parts"):
        ask(["parts"], recipe)
    assert not answers.exists()
    monkeypatch.setattr(sys, "stdin", Stream("y\n"))
    ask(["parts"], recipe)
    assert answers.exists()


class Terminal:
    """The user's answer to each question, and the questions."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.questions: list[str] = []
        self.answer: bool | None = None  # None: there is no terminal
        tty = SimpleNamespace(isatty=lambda: self.answer is not None)
        patch.setattr(consent, "sys", SimpleNamespace(stdin=tty, stderr=tty))
        patch.setattr(consent.typer, "confirm", lambda text, **_: self.questions.append(text) or self.answer)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    modules, path, added = set(sys.modules), [*sys.path], {*ADDED_PATHS}
    yield Terminal(monkeypatch)
    sys.path[:] = path
    ADDED_PATHS.intersection_update(added)
    forget(modules)


def forget(kept: set[str]) -> None:
    for name in set(sys.modules) - kept:
        if name.startswith(("outside_parts", "outside_pack", "theirs")):
            del sys.modules[name]


def with_parts(folder: Path, body: str = "") -> Path:
    """A recipe in `folder` with its own module, which leaves a file `ran` if it is imported."""
    folder.mkdir(exist_ok=True)
    (folder / "outside_parts.py").write_text(f"open('ran', 'a').close()\n{body}", encoding="utf-8")
    (folder / "r.yaml").write_text(RECIPE, encoding="utf-8")
    return folder / "r.yaml"


def show(recipe: Path, *options: str) -> int:
    """`qkv show`, as in a separate process."""
    modules, path = set(sys.modules), [*sys.path]
    status = main([*options, "show", str(recipe)])
    sys.path[:] = path
    forget(modules)
    return status


def test_a_changed_module_is_asked_about_again(
    terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    recipe = with_parts(tmp_path / "mine")
    terminal.answer = True
    assert show(recipe) == 0 and show(recipe) == 0
    assert len(terminal.questions) == 1
    (tmp_path / "ran").unlink()
    with_parts(tmp_path / "mine", "changed = True")
    terminal.answer = None
    assert show(recipe) == 2 and not (tmp_path / "ran").exists()
    refused = capsys.readouterr().err
    assert (
        "outside_parts.py, code from outside qkv, which changed since you agreed; allow it with qkv --import" in refused
    )
    terminal.answer = True
    assert show(recipe) == 0 and show(recipe) == 0
    assert len(terminal.questions) == 2 and terminal.questions[1].endswith("which changed since you agreed. Run it?")


def test_a_module_of_the_same_name_elsewhere_is_asked_about_again(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    recipe = with_parts(tmp_path / "mine")
    recipe.write_text(RECIPE.replace("[outside_parts.py]", "[outside_pack.parts]"))
    for place in ("here", "there"):
        (tmp_path / place / "outside_pack").mkdir(parents=True)
        (tmp_path / place / "outside_pack" / "parts.py").write_text("open('ran', 'w').close()", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    terminal.answer = True
    assert show(recipe) == 0 and show(recipe) == 0
    module = tmp_path / "here" / "outside_pack" / "parts.py"
    assert terminal.questions == [f"{recipe} imports outside_pack.parts ({module}), code from outside qkv. Run it?"]
    monkeypatch.chdir(tmp_path / "there")
    terminal.answer = None
    assert show(recipe) == 2 and not (tmp_path / "there" / "ran").exists()
    assert "which changed since you agreed" in capsys.readouterr().err


def test_an_answer_is_for_one_recipe(terminal: Terminal, tmp_path: Path) -> None:
    recipe = with_parts(tmp_path / "mine")
    (tmp_path / "mine" / "other.yaml").write_text(RECIPE)
    terminal.answer = True
    assert show(recipe) == 0 and show(recipe.with_name("other.yaml")) == 0
    assert len(terminal.questions) == 2


def test_another_file_of_a_modules_name_is_never_run_in_its_place(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    recipe, other = with_parts(tmp_path / "mine"), with_parts(tmp_path / "other").with_name("outside_parts.py")
    assert show(recipe, "--yes", "--import", str(other)) == 2
    assert f"the module outside_parts is {other}; rename the file" in capsys.readouterr().err
    (tmp_path / "ran").unlink()
    monkeypatch.syspath_prepend(str(other.parent))
    assert show(recipe, "--yes") == 2 and not (tmp_path / "ran").exists()
    assert f"the module outside_parts is {other}; rename the file" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"{", b"[1]", b"[" * 100_000, b"\xff", b'"text"'])
def test_damaged_answers_are_told_in_a_line_and_count_as_none(
    content: bytes, terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    recipe, answers = with_parts(tmp_path / "mine"), tmp_path / "config" / "qkv" / "imports.json"
    answers.parent.mkdir(parents=True)
    answers.write_bytes(content)
    assert show(recipe) == 2 and not (tmp_path / "ran").exists()
    first, second = capsys.readouterr().err.splitlines()
    assert f"{answers}, the earlier answers about imports, can't be read (it is damaged); delete it" in first
    assert "code from outside qkv; allow it with qkv --import" in second
    terminal.answer = True
    assert show(recipe) == 0 and show(recipe) == 0 and len(terminal.questions) == 1


@pytest.mark.parametrize("answer", ['{"%s": 5}', '{"%s": ["%s"]}', '{"%s": {"%s": 7}}'])
def test_answers_of_another_form_count_as_none(
    answer: str, terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    recipe, answers = with_parts(tmp_path / "mine"), tmp_path / "config" / "qkv" / "imports.json"
    answers.parent.mkdir(parents=True)
    names = str(recipe), str(recipe.with_name("outside_parts.py"))
    answers.write_text(answer % names[: answer.count("%s")])
    assert show(recipe) == 2 and not (tmp_path / "ran").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert "code from outside qkv" in line and "allow it with qkv --import" in line


def test_answers_that_can_not_be_read_or_kept_are_told_in_a_line(
    terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    recipe, answers = with_parts(tmp_path / "mine"), tmp_path / "config" / "qkv" / "imports.json"
    answers.mkdir(parents=True)
    terminal.answer = True
    assert show(recipe) == 0
    told = capsys.readouterr().err
    assert f"{answers}, the earlier answers about imports, can't be read (is a directory); delete it" in told
    assert f"{answers} can't be written (is a directory), so the next command asks again" in told


@pytest.mark.parametrize(
    "use",
    [
        *(("eval", "run"), ("predict", "run", "ab"), ("generate", "run", "ab")),
        pytest.param(("cost", "run"), marks=pytest.mark.lab),
    ],
)
def test_a_run_asks_as_a_recipe_does(
    use: tuple[str, ...], terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    with_parts(run).rename(run / "recipe.yaml")
    assert main([*use]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith(f"qkv: run imports {run / 'outside_parts.py'}, code from outside qkv; allow it with qkv")
    answers = tmp_path / "config" / "qkv" / "imports.json"
    answers.parent.mkdir(parents=True)
    answers.write_text("{")
    assert main([*use]) == 2 and not (tmp_path / "ran").exists()
    damaged, again = capsys.readouterr().err.splitlines()
    assert "can't be read (it is damaged); delete it" in damaged and again == refused.strip()


@pytest.mark.parametrize("name", ["parts\\e[2K.py", "parts\\n.py"])
def test_a_name_can_not_hide_the_question(
    name: str, terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    recipe = with_parts(tmp_path / "mine")
    recipe.write_text(RECIPE.replace("[outside_parts.py]", f'["{name}"]'))
    terminal.answer = True
    assert show(recipe) == 2 and not terminal.questions
    assert "which is not the name of a module" in capsys.readouterr().err


def test_packages_beside_the_modules_of_a_recipe_do_not_count_as_installed(terminal: Terminal, tmp_path: Path) -> None:
    info = tmp_path / "mine" / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[qkv.parts]\ntheirs = theirs\n", encoding="utf-8")
    (tmp_path / "mine" / "theirs.py").write_text("open('theirs-ran', 'w').close()", encoding="utf-8")
    import_installed.cache_clear()
    assert show(with_parts(tmp_path / "mine"), "--yes") == 0
    assert (tmp_path / "ran").exists() and not (tmp_path / "theirs-ran").exists()


def test_a_recipe_read_without_its_code_stays_so(terminal: Terminal, tmp_path: Path) -> None:
    """`qkv.load` runs no code unless it is told to; evaluating such a run in Python does not either."""
    from qkv.runs.recipes.recipe import Recipe

    recipe = Recipe.load(with_parts(tmp_path / "mine"), imports=False)
    assert recipe.change(["data.test=5"]).data.test == 5 and not (tmp_path / "ran").exists()
    added = with_parts(tmp_path / "other").with_name("outside_parts.py")
    assert recipe.change([f"imports=[{added}]"]).imports == (str(added),) and (tmp_path / "ran").exists()
