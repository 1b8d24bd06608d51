"""Parts from outside qkv reach the command line: `imports:` of a recipe, `qkv --import`, and installed packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fast_subset import fast
from preloaded_python import python

import qkv
from qkv.cli import main

SOURCE = Path(qkv.__file__).parents[1]
MODEL = (Path(__file__).parents[1] / "helpers" / "outside_model.py").read_text(encoding="utf-8")
HEADLESS = (  # the same model, with a head that its spec does not name
    MODEL.replace('kind="convolutions"', 'kind="headless"')
    .replace("    head: LanguageModel = LanguageModel(tied=False)\n", "")
    .replace("spec.head.module", "LanguageModel(tied=False).module")
    .replace("self.head.cost", "LanguageModel(tied=False).cost")
)
PATTERN = '''"""A part."""
from qkv.nn.patterns.basic import Causal


class Backwards(Causal, kind="backwards-{name}"):
    """Causal by another name."""
'''
RECIPE = """
name: outside
imports: [convolutions.py]
data: {kind: reverse, train: 200, validation: 20, test: 20}
tokenizer: char
model: {preset: convolutions, d_model: 16}
objective: next-token
batching: {tokens: 256, context: 64}
training: {max_steps: 2, optimizer: {kind: adamw, lr: 1e-3}}
evaluation: {examples: 2, test_examples: 2}
"""


def command(
    *arguments: str, cwd: Path, path: Path | None = None, answer: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A run of `qkv`; with an `answer` it believes that it has a terminal."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SOURCE), *([str(path)] if path else [])]),
        "XDG_CONFIG_HOME": str(cwd / "config"),
        "OMP_NUM_THREADS": "1",
    }
    program = "import sys; from qkv.cli import main; sys.exit(main())"
    if answer is not None:
        program = f"import sys; sys.stdin.isatty = sys.stderr.isatty = lambda: True; {program}"
    return subprocess.run(
        [*python(), "-c", program, *arguments],
        cwd=cwd,
        env=environment,
        input=answer or "",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "convolutions.py").write_text(MODEL, encoding="utf-8")
    (folder / "r.yaml").write_text(RECIPE, encoding="utf-8")
    return folder / "r.yaml"


def test_without_a_terminal_a_recipes_imports_are_refused_by_name(recipe: Path, tmp_path: Path) -> None:
    done = command("train", str(recipe), cwd=tmp_path)
    module = recipe.with_name("convolutions.py")
    assert done.returncode == 2
    assert f"{recipe} imports {module}, code from outside qkv" in done.stderr
    assert f"qkv --import {module}" in done.stderr


@pytest.mark.slow
def test_in_a_terminal_it_is_asked_once_and_the_answer_is_remembered(recipe: Path, tmp_path: Path) -> None:
    no = command("show", str(recipe), cwd=tmp_path, answer="n\n")
    assert no.returncode == 2
    assert "nothing was imported" in no.stderr
    yes = command("show", str(recipe), "--json", cwd=tmp_path, answer="y\n")
    assert yes.returncode == 0, yes.stderr
    assert "Run it? [y/N]" in yes.stderr
    assert json.loads(yes.stdout)["imports"] == [str(recipe.with_name("convolutions.py"))]
    again = command("show", str(recipe), cwd=tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_a_model_of_another_make_trains_and_its_run_is_used(recipe: Path, tmp_path: Path) -> None:
    trained = command("--yes", "train", str(recipe), "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    used = command("generate", "run", "abc", "--max-new-tokens", "3", cwd=tmp_path)  # who trained it is not asked again
    assert used.returncode == 0, used.stderr
    (tmp_path / "config" / "qkv" / "imports.json").unlink()
    other = command("generate", "run", "abc", cwd=tmp_path)
    assert other.returncode == 2
    assert f"run imports {recipe.with_name('convolutions.py')}" in other.stderr
    named = command("--import", str(recipe.with_name("convolutions.py")), "score", "run", "abc\tcba", cwd=tmp_path)
    assert named.returncode == 0, named.stderr


def test_what_the_option_imports_is_remembered_with_the_run(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(RECIPE.replace("imports: [convolutions.py]\n", ""), encoding="utf-8")
    unknown = command("train", str(recipe), cwd=tmp_path)
    assert unknown.returncode == 2
    assert "there is no preset 'convolutions'" in unknown.stderr
    module = recipe.with_name("convolutions.py")
    done = command("--import", str(module), "train", str(recipe), "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"imports: [{module}]" in (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")


def test_a_module_of_the_current_directory_is_imported_and_listed_as_its_own(tmp_path: Path) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(PATTERN.format(name="one"), encoding="utf-8")
    done = command("--import", "my_package.parts", "list", "patterns", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Causal by another name. From my_package.parts." in done.stdout


NOT_IMPORTED = {
    "nowhere.parts": "nowhere.parts can't be imported: there is no module nowhere on Python's path",
    "no.py": "there is no file no.py",
    "exits.py": "exits.py can't be imported: SystemExit: 3",
    "": "'' is not a module; give a name such as my_package.parts",
    "..": "'..' is not a module",
    "some/folder": "'some/folder' is not a module",
}


def test_what_can_not_be_imported_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exits.py").write_text("raise SystemExit(3)")
    for name, what in NOT_IMPORTED.items():
        assert main(["--import", name, "list", "patterns"]) == 2, name
        error = capsys.readouterr().err
        assert what in error and "Traceback" not in error


@pytest.mark.slow
def test_a_run_of_a_package_of_several_modules_is_used_and_missed_by_name(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("from . import parts\n", encoding="utf-8")
    (package / "parts.py").write_text(HEADLESS, encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        RECIPE.replace("convolutions.py", "mine").replace("convolutions", "headless"), encoding="utf-8"
    )
    trained = command("--yes", "train", "r.yaml", "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    used = command("generate", "run", "abc", "--max-new-tokens", "3", cwd=tmp_path)  # remembered; the spec has no head
    assert used.returncode == 0, used.stderr
    (tmp_path / "config" / "qkv" / "imports.json").unlink()
    asked = command("generate", "run", "abc", cwd=tmp_path)
    assert asked.returncode == 2
    assert "run imports mine (" in asked.stderr and "qkv --import mine " in asked.stderr
    package.rename(tmp_path / "moved")
    gone = command("--yes", "generate", "run", "abc", cwd=tmp_path)
    assert gone.returncode == 2
    assert "mine can't be imported: there is no module mine on Python's path" in gone.stderr
    assert "(run imports it)" in gone.stderr


@pytest.mark.slow
def test_a_run_remembers_the_modules_that_its_own_imported(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("from . import parts\n", encoding="utf-8")
    (package / "parts.py").write_text(HEADLESS, encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        RECIPE.replace("convolutions.py", "mine.names").replace("convolutions", "headless"), encoding="utf-8"
    )
    trained = command("--yes", "train", "r.yaml", "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    used = command("score", "run", "abc\tcba", cwd=tmp_path)
    assert used.returncode == 0, used.stderr


def test_what_a_module_prints_while_it_is_imported_does_not_mix_with_the_output(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "print('hello from chatty')\n" + PATTERN.format(name="chatty"), encoding="utf-8"
    )
    done = command("--import", "chatty.py", "list", "patterns", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "backwards-chatty" in json.loads(done.stdout)
    assert "hello from chatty" in done.stderr


def test_a_bug_may_be_in_an_imported_module(tmp_path: Path) -> None:
    part = PATTERN.format(name="broken") + (
        "    def model_post_init(self, context):\n        raise TypeError('out of order')\n"
    )
    (tmp_path / "broken.py").write_text(part, encoding="utf-8")
    done = command(
        "--import", "broken", "show", "lm", "model.decoder.blocks.*.attention.pattern=backwards-broken", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "a bug in broken or in qkv: TypeError: out of order" in done.stderr


def test_a_file_with_the_name_of_a_module_of_python_is_refused_not_skipped(recipe: Path, tmp_path: Path) -> None:
    (recipe.parent / "json.py").write_text(PATTERN.format(name="json"))
    recipe.write_text(RECIPE.replace("convolutions.py", "json.py"))
    done = command("--yes", "show", str(recipe), cwd=tmp_path)
    assert done.returncode == 2
    assert "json.py can't be imported: the module json is" in done.stderr


def test_imports_may_be_left_empty(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(
        RECIPE.replace("[convolutions.py]", "").replace("preset: convolutions, d_model: 16", "preset: gpt, d_model: 24")
    )
    done = command("show", str(recipe), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("entries", fast([5, None, [1, {}], "convolutions.py"], [1, {}]))
def test_damaged_answers_count_as_none(entries: object, recipe: Path, tmp_path: Path) -> None:
    answers = tmp_path / "config" / "qkv" / "imports.json"
    answers.parent.mkdir(parents=True)
    answers.write_text(json.dumps({str(recipe.resolve()): entries}))
    done = command("show", str(recipe), cwd=tmp_path)
    assert done.returncode == 2
    assert "code from outside qkv; allow it with" in done.stderr


def test_installed_packages_are_imported_by_their_entry_points(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "their_parts-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-parts\nVersion: 1.0\n", encoding="utf-8")
    points = "[qkv.parts]\ntheirs = their_parts\nbroken = their_broken\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    chatty = "print('welcome to their parts')\n"
    (site / "their_parts.py").write_text(chatty + PATTERN.format(name="theirs"), encoding="utf-8")
    (site / "their_broken.py").write_text("raise RuntimeError('out of\\norder')", encoding="utf-8")
    done = command("list", "patterns", "--json", cwd=tmp_path, path=site)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["backwards-theirs"] == "Causal by another name. From their_parts."
    assert "welcome to their parts" in done.stderr
    assert done.stderr.count("can't be imported") == 1
    assert "their_broken of the package their-parts can't be imported: out of order" in done.stderr
    program = "from qkv.nn.patterns.basic import Pattern; print(Pattern.from_dict({'kind': 'backwards-theirs'}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(site)])}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    assert found.stdout.startswith("Backwards(")


@pytest.mark.slow
def test_a_part_that_the_imported_module_imports_itself_is_not_asked_about_again(recipe: Path, tmp_path: Path) -> None:
    recipe.with_name("convolutions.py").rename(recipe.with_name("inner.py"))
    recipe.with_name("convolutions.py").write_text("import inner", encoding="utf-8")
    assert command("--yes", "train", str(recipe), "--out", "run", cwd=tmp_path).returncode == 0
    used = command("generate", "run", "abc", "--max-new-tokens", "3", cwd=tmp_path)
    assert used.returncode == 0, used.stderr
