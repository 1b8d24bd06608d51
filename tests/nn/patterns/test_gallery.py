"""The table of patterns is whole, says what it shows, and is what docs/attention.md and `qkv list patterns` show."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.cli import main
from qkv.nn.patterns.basic import Pattern
from qkv.nn.patterns.gallery import GALLERY, Example
from qkv.nn.patterns.pictures import characters

PAGE = Path(__file__).parents[3] / "docs" / "attention.md"
SECTION = PAGE.read_text(encoding="utf-8").split("\n## Patterns\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("example", GALLERY, ids=lambda example: example.spelling)
def test_a_spelling_is_what_makes_the_pattern(example: Example) -> None:
    called = re.findall(r"(\w+)\(", example.spelling)
    assert eval(example.spelling, {name: getattr(qkv, name) for name in called}) == example.pattern
    assert example.about.endswith(".")


def test_every_kind_is_shown() -> None:
    ours = {kind for kind, cls in Pattern.kinds.items() if cls.__module__.startswith("qkv.")}
    assert {part.kind for example in GALLERY for _, part in example.pattern.walk()} == ours


def test_papers_are_named_where_the_pattern_is() -> None:
    for example in GALLERY:
        papers = " ".join(" ".join((type(part).__doc__ or "").split()) for _, part in example.pattern.walk())
        if "Mistral" not in example.paper:
            assert example.paper.split(",")[0] in papers, example


def test_list_draws_every_pattern(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["list", "patterns", "--out", str(tmp_path / "pictures")]) == 0
    printed = capsys.readouterr().out
    for example in GALLERY:
        assert example.spelling in printed and f"{example.pattern.pairs(4096):,} of 16,777,216 pairs" in printed
        for line in characters(example.pattern.mask(16)).splitlines():
            assert line in printed
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert len(names) == 2 * len(GALLERY) and {"causal-window-4.svg", "causal-not-window-3.png"} <= names


def test_list_names_patterns_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(Pattern, kind="odd-test"):
        """Keys at odd positions."""

    try:
        assert main(["list", "patterns", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["odd-test"] == f"Keys at odd positions. From {Odd.__module__}."
        assert main(["list", "patterns"]) == 0
        assert "Keys at odd positions." in capsys.readouterr().out
    finally:
        del Pattern.kinds["odd-test"]


def test_only_patterns_and_positions_have_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "presets", "--out", "pictures"]) == 2
    assert "--out is for the pictures of patterns and positions, and presets have none" in capsys.readouterr().err


# -- the page -----------------------------------------------------------------------------------------------------------


def test_the_pages_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "attention"}
    try:
        for block in re.findall(r"^```python\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), names)
        added = next(part for part in Pattern.kinds.values() if part.__module__ == "attention")
        assert len(added.model_fields) == 1
        source = next(b for b in re.findall(r"^```python\n(.*?)^```", SECTION, re.M | re.S) if "kind=" in b)
        lines = [line for line in source[source.index("class ") :].split("\n\n\n")[0].splitlines() if line.strip()]
        assert len(lines) <= 10, "a pattern in ten lines"
    finally:
        for kind in [kind for kind, cls in Pattern.kinds.items() if cls.__module__ == "attention"]:
            del Pattern.kinds[kind]


def test_the_pages_commands_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    calls = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert calls and all(call[0] == "qkv" for call in calls)
    for call in calls:
        assert main(call[1:]) == 0, capsys.readouterr().err


def test_the_pages_table_names_every_spelling() -> None:
    table = "\n".join(line for line in SECTION.splitlines() if line.startswith("|"))
    called = {name for example in GALLERY for name in re.findall(r"(\w+)\(", example.spelling)}
    assert not [name for name in called if f"`{name}(" not in table]


SPELLINGS = [
    spelling
    for line in SECTION.splitlines()
    if line.startswith("| `")
    for spelling in re.findall(r"`(\w+)\(([^`)]*)\)`", line.split(" | ")[0])
]


def test_the_page_has_the_patterns() -> None:
    assert {"fixed", "window", "BigBird", "by_head"} <= {name for name, _ in SPELLINGS}


@pytest.mark.parametrize(("name", "arguments"), SPELLINGS)
def test_what_the_page_spells_is_what_is_called(name: str, arguments: str) -> None:
    """Letters are sizes; what is named is a parameter of that name, and a number beside it is its default."""
    function: Any = getattr(qkv, name)
    given = [part for part in arguments.split(", ") if part not in ("", "…")]
    named = dict(part.split("=") for part in given if "=" in part)
    sizes: list[Any] = [qkv.full() if name == "by_head" else 5 for part in given if "=" not in part]
    parameters = inspect.signature(function).parameters
    for keyword, value in named.items():
        assert keyword in parameters, keyword
        if value.isdigit():
            assert parameters[keyword].default == int(value)
    made = function(*sizes, **{keyword: 3 for keyword, value in named.items() if value.isalpha() and value.islower()})
    assert isinstance(made, Pattern)
