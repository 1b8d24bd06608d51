"""The commands and their help pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from qkv.cli import main
from qkv.cli.app import COMMANDS as COMMANDS_OF_GROUPS
from qkv.cli.app import GROUPS, MEANINGS, WITHIN, app
from qkv.io.families import presets
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.synonyms import RECIPES

pytestmark = pytest.mark.usefixtures("elsewhere")


COMMANDS = (
    *("demo", "train", "eval", "generate", "translate", "score", "embed", "classify", "fill", "predict"),
    *("tokenizer", "list", "show"),
)
OF_LAB = ("cost", "doctor")


@pytest.mark.parametrize("command", ["", *COMMANDS, *(pytest.param(name, marks=pytest.mark.lab) for name in OF_LAB)])
def test_help_is_complete(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Usage: qkv" in printed
    for name in COMMANDS if not command else ():
        assert f" {name} " in printed
    for option in ("--num-beams", "--min-p", "--stop", "--scores", "--stream") if command == "generate" else ():
        assert option in printed


HELP = "import sys; from qkv.cli import main; main(['train', '--help']); print('torch' in sys.modules)"
SMALLEST = "import typer; app = typer.Typer(); app.command()(lambda: None); app(['--help'])"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    """Held against the smallest program with a help page, since both take longer on a busy or a slow machine."""
    ours, smallest = [], []
    for _ in range(5):
        began = seconds_of_children()
        done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60)
        between = seconds_of_children()
        subprocess.run([sys.executable, "-c", SMALLEST], capture_output=True, check=True, timeout=60)
        ours.append(between - began)
        smallest.append(seconds_of_children() - between)
    assert done.stdout.rstrip().endswith("False"), done.stdout[-200:]
    assert min(ours) < 2.5 * min(smallest)


def seconds_of_children() -> float:
    """Processor time, which depends least on what else the machine does."""
    times = os.times()
    return times.children_user + times.children_system


def test_it_runs_as_a_module_and_tells_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "qkv", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, "qkv")


def test_commands_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    places = [printed.index(f"─ {title} ─") for title in GROUPS]
    assert places == sorted(places) and "─ Commands ─" not in printed
    assert list(COMMANDS_OF_GROUPS) == list(dict.fromkeys(COMMANDS_OF_GROUPS))
    train = printed[places[0] : places[1]]
    assert " tokenizer " in train and " predict " not in train


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("finetune", "train"),
        ("export", "convert"),
        ("server", "serve"),
        ("merge", "convert"),
        ("info", "show"),
        ("plot", "look"),
        ("compare", "report"),
        ("nbest", "generate"),
        ("evaluate", "eval"),
        ("infer", "predict"),
        ("test", "eval"),
        ("upload", "push"),
        ("download", "generate"),
        ("FineTune", "train"),
        ("finetuning", "train"),
        ("fine_tune", "train"),
        ("merge_and_unload", "convert"),
        ("run", "generate"),
        ("run_clm.py", "train"),
        ("llama-cli", "generate"),
        ("llama-perplexity", "score"),
        ("convert_hf_to_gguf.py", "convert"),
        ("push_to_hub", "push"),
        ("bench", "generate"),
        ("dpo", "train"),
        ("rerank", "predict"),
        ("bleu", "eval"),
        ("torchrun", "train"),
        ("tensorboard", "report"),
        ("repl", "chat"),
    ],
)
def test_a_name_of_another_program_leads_to_what_does_it(
    name: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "x"]) == 2
    told = capsys.readouterr().err
    assert f"there is no command {name!r}: " in told and f"`qkv {command} " in told and len(told.splitlines()) == 1


@pytest.mark.lab
def test_the_advice_names_commands_and_options_that_exist() -> None:
    names = [name for group in MEANINGS for name in group.split()]
    assert len(names) == len(set(names)) and not set(names) & set(COMMANDS_OF_GROUPS)
    root = typer.main.get_command(app)
    for advice in [*MEANINGS.values(), *(advice for group in WITHIN.values() for advice in group.values())]:
        for line in re.findall("`qkv ([^`]*)`", advice):
            words = line.split()
            if words[0].startswith("-"):
                continue
            command = root.get_command(None, words[0])  # type: ignore[attr-defined]
            while hasattr(command, "list_commands") and len(words) > 1:
                words = words[1:]
                command = command.get_command(None, words[0])
            options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
            assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize(
    ("group", "name", "command"),
    [
        pytest.param("cost", "estimate", "cost predict", marks=pytest.mark.lab),
        pytest.param("cost", "memory", "cost predict", marks=pytest.mark.lab),
        pytest.param("cost", "vs", "cost compare", marks=pytest.mark.lab),
        ("tokenizer", "fit", "tokenizer train"),
        ("tokenizer", "Encode", "tokenizer show"),
        ("vectors", "most_similar", "vectors nearest"),
        pytest.param("scaling", "laws", "scaling fit", marks=pytest.mark.lab),
    ],
)
def test_a_name_within_a_group_leads_to_what_does_it(
    group: str, name: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([group, name, "x"]) == 2
    told = capsys.readouterr().err
    assert f"there is no command '{group} {name}': `qkv {command}" in told and len(told.splitlines()) == 1


def test_the_names_within_a_group_are_not_taken() -> None:
    root = typer.main.get_command(app)
    for group, meanings in WITHIN.items():
        names = [name for one in meanings for name in one.split()]
        own = root.get_command(None, group).list_commands(None)  # type: ignore[attr-defined]
        assert len(names) == len(set(names)) and not {*names} & {*own, *packaged(), *presets()}


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("sentiment", "classify"), ("NER", "tag"), ("question_answering", "answer"), ("detr", "detect")],
)
@pytest.mark.parametrize("command", ["train", "show", pytest.param("cost", marks=pytest.mark.lab)])
def test_the_name_of_a_task_leads_to_its_recipe(
    command: str, name: str, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name]) == 2
    assert capsys.readouterr().err.endswith(f"{name!r}; the recipe for it is {recipe!r}\n")


def test_the_recipes_of_tasks_exist() -> None:
    assert {*RECIPES.values()} <= {*packaged()} and not {*RECIPES} & {*packaged(), *presets()}


def test_a_misspelt_command_is_still_found_by_its_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2 and "Did you mean 'train'" in capsys.readouterr().err


def test_every_command_that_writes_where_out_says_has_overwrite() -> None:
    found: dict[tuple[str, ...], set[str]] = {}
    for path, option in options():
        found.setdefault(path, set()).update(option.opts)
    writing = {path for path, names in found.items() if "--out" in names}
    assert {path for path in writing if "--overwrite" not in found[path]} == {("reproduce",)}  # which continues
    assert {("look",), ("explain",), ("report",), ("list",), ("cost", "sweep"), ("scaling", "fit")} <= writing


WRITING = {
    "look": ("look small-english tall --layers 0 --out", "x.svg"),
    "explain": ("explain mask --out", "x.html"),
    "cost sweep": ("cost gpt2 --sweep n_layers=1..2 --out", "x.svg"),
    "list": ("list patterns --out", "pictures/causal.svg"),
    "cost simulate": ("cost gpt2 --simulate --gpus 8..16 --hardware h100 --length 256 --out", "x.svg"),
}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("command", "file"),
    [
        WRITING["explain"],
        *(pytest.param(*one, marks=pytest.mark.slow) for name, one in WRITING.items() if name != "explain"),
    ],
)
def test_a_file_that_is_there_is_kept_unless_it_may_be_overwritten(
    command: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*command.split(), file.partition("/")[0]]
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text("mine")
    assert main(argv) == 2
    assert f"{file} already exists; replace it with --overwrite, or choose another name" in capsys.readouterr().err
    assert Path(file).read_text() == "mine"
    assert main([*argv, "--overwrite"]) == 0 and "<" in Path(file).read_text(encoding="utf-8")
    assert main([*argv[: argv.index("--out")], "--overwrite"]) == (0 if "look" in argv else 2)
    if "look" not in argv:
        assert "give --out too" in capsys.readouterr().err


def options(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every option of every command."""
    command = command or typer.main.get_command(app)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from options(command.get_command(None, name), (*path, name))
    else:
        yield from ((path, one) for one in command.params if one.param_type_name == "option")


@pytest.mark.lab
def test_every_command_warns_of_an_option_that_is_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    single = {path: one for path, one in options() if not (one.multiple or one.is_flag or one.is_eager)}
    assert len(single) > 30
    for path, option in single.items():
        main([*path, option.opts[0], "1", option.opts[0], "2", "--help"])
        assert f"{option.opts[0]} is given twice; the last value is used" in capsys.readouterr().err, path


def test_a_repeatable_option_and_a_flag_may_be_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--help", "--help"]) == 0
    path, option = next((path, one) for path, one in options() if one.multiple)
    assert main([*path, option.opts[0], "1", option.opts[0], "2", "--help"]) == 0
    assert "twice" not in capsys.readouterr().err
    assert main(["embed", "--normalize", "--no-normalize", "--help"]) == 0
    assert "--normalize/--no-normalize is given twice" in capsys.readouterr().err
