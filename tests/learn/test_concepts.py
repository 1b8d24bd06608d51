"""Every concept of a course is found by every word for it, in places that exist, and its command shows what it should."""

from __future__ import annotations

import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer

from qkv.cli import main
from qkv.cli.app import app
from qkv.learn.concepts import Concept, concepts, find, plain
from qkv.learn.explain import registry
from qkv.learn.tour.pages import CodeCell, pages
from qkv.learn.tour.pages import find as page_of

pytestmark = pytest.mark.usefixtures("elsewhere")

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = sorted({concept.command for concept in concepts()})
QUICK = [command for command in COMMANDS if command.startswith("qkv explain ")]


def flat(text: str) -> str:
    """A text with single spaces."""
    return re.sub(r"\s+", " ", text)


def test_every_word_leads_to_one_concept():
    names = [name for concept in concepts() for name in concept.names()]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    assert len(concepts()) > 140 and len(names) > 1000
    for concept in concepts():
        for word in (concept.title, *concept.words, *concept.also):
            assert find(word) is concept is find(plain(word).replace("-", " ").upper()), word


def test_every_word_leads_to_a_page_of_the_tour_and_an_explanation():
    """Unless a page or an explanation has the very name."""
    short = {page.short for page in pages()}
    for concept in concepts():
        assert concept.tour in short, concept.title
        for name in concept.names():
            assert page_of(name).short == (name if name in short else concept.tour)
            if name in registry.EXPLANATIONS or concept.explanation:
                assert registry.resolved(name) in registry.EXPLANATIONS


def test_a_phrase_with_a_known_word_in_it_is_answered_with_the_word():
    assert find("Shazeer encoder complexity") is None
    with pytest.raises(ValueError, match="did you mean 'encoder-complexity'"):
        registry.resolved("Shazeer encoder complexity")


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("autoregressive", "decoding"),
        ("teacher forcing", "encoder-decoder"),
        ("skip connection", "blocks"),
        ("self-supervised", "families"),
        ("elbow", "pruning"),
        ("HBM", "flash"),
        ("SRAM", "flash"),
        ("Kronecker", "dictionary"),
        ("word sense", "heads"),
        ("RoPE", "positions"),
        ("luong", "bottleneck"),
        ("pruning", "pruning"),
        ("softmax", "dictionary"),
        ("ZeRO", "machines"),
        ("GNMT", "changed"),
        ("flash_attention", "flash"),
        ("Nadaraya-Watson", "dictionary"),
        ("interpretability", "inside"),
        ("mistakes", "slips"),
        ("the context vector", "bottleneck"),
        ("residual connections", "blocks"),
        ("elbow thresholds", "pruning"),
        ("[CLS]", "modalities"),
        ("##", "tokens"),
    ],
)
def test_words_of_lectures_lead_to_their_page(word: str, place: str):
    assert page_of(word).short == place


def test_the_documents_that_are_named_exist():
    for concept in concepts():
        name, _, anchor = concept.more.partition("#")
        if name:
            text = (DOCS / name).read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)
            }
            assert not anchor or anchor in headings, concept.title


def test_every_command_parses():
    group: Any = typer.main.get_command(app)
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        context, found = group.make_context(program, list(arguments)), group
        while hasattr(found, "resolve_command"):
            name, found, arguments = found.resolve_command(context, [*context._protected_args, *context.args])
            context = found.make_context(name, list(arguments), parent=context)
        assert context.params


def test_every_command_for_data_of_ones_own_has_its_options():
    found = [concept.yours for concept in concepts() if concept.yours]
    assert len(found) > 8
    for command in found:
        group: Any = typer.main.get_command(app)
        _, *arguments = command.split()
        while hasattr(group, "get_command"):
            group = group.get_command(group.make_context(command, [], resilient_parsing=True), arguments.pop(0))
        options = {name for parameter in group.params for name in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options, command


def test_pages_of_the_tour_print_what_concepts_expect():
    """Of commands that walk through a page; other tests run the pages."""
    for concept in concepts():
        if concept.command.startswith("qkv tour "):
            page = page_of(concept.command.removeprefix("qkv tour "))
            printed = "".join(part.output for part in page.parts() if isinstance(part, CodeCell))
            assert flat(concept.shows) in flat(printed), concept.title


def expected(command: str) -> list[Concept]:
    return [concept for concept in concepts() if concept.command == command]


def check(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(shlex.split(command)[1:]) == 0
    out = flat(capsys.readouterr().out)
    missing = [concept.title for concept in expected(command) if flat(concept.shows) not in out]
    assert not missing, f"{command} does not show what to expect of {missing}"


@pytest.mark.parametrize("command", QUICK)
def test_an_explanation_shows_what_to_expect(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    check(command, capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in QUICK])
def test_a_command_shows_what_to_expect(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    check(command, capsys, monkeypatch)


def test_the_page_shows_the_table():
    path = DOCS / "concepts.py"
    spec = spec_from_file_location("concepts_of_docs", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "lectures.md").read_text(encoding="utf-8")
    assert page == module.renewed(page), "write it again: .venv/bin/python docs/concepts.py"
    assert all(module.row(concept) in page for concept in concepts())
