"""The report's head: data, model, tokenizer, command and recipe."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.runs.report.report import write_report
from qkv.runs.report.story import Story
from qkv.runs.report.what_was_trained import what_was_trained

SMALL = "model.d_model=16 model.n_heads=2 model.d_ff=32 model.n_layers=1 batching.tokens=256 data.train=64 data.test=8"


class Text(HTMLParser):
    """The texts of a page, and the roles and labels of its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.labels: list[tuple[str | None, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if "aria-label" in found:
            self.labels.append((found.get("role"), found["aria-label"]))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())

    def row(self, name: str) -> str:
        return self.texts[self.texts.index(name) + 1]


def head_of(**recipe: object) -> Text:
    section = what_was_trained(Story(Path("runs/x"), recipe=recipe))
    assert section is not None
    return Text(section.body)


def test_a_trained_run_says_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = f"{SMALL} data.validation=8 training.max_steps=2 evaluation.test_examples=4 data.longest=6".split()
    assert main(["train", "reverse", *settings, "--out", "my run", "--device", "cpu"]) == 0
    page = Text((tmp_path / "my run" / "report.html").read_text(encoding="utf-8"))
    assert page.row("Data") == "reverse"
    assert page.row("Examples").startswith("64 for training, 8 for validation, 8 for test")
    assert page.row("Model").startswith("Transformer(") and "parameters" in page.row("Model")
    assert page.row("Tokenizer").startswith("word, 30 tokens")
    assert page.row("Device") == "cpu"
    assert page.row("Command") == f"qkv train reverse {' '.join(settings)} --out 'my run' --device cpu"
    assert {("region", "Command"), ("region", "Recipe")} <= set(page.labels)
    assert any("max_steps: 2" in text for text in page.texts)


def test_paths_and_languages_of_the_data() -> None:
    pairs = {"kind": "pairs", "source": "a.en", "target": "a.de", "source_language": "en", "target_language": "de"}
    page = head_of(data=pairs, model={"directory": "gpt2"}, adapter={"kind": "lora"})
    assert page.row("Data") == "pairs\nsource: a.en\ntarget: a.de"
    assert page.row("Languages") == "en → de"
    assert page.row("Base model") == "gpt2" and page.row("Adapter") == "lora"
    mixed = {"kind": "mixture", "parts": [{"kind": "text", "path": "<b>.txt"}, {"kind": "text", "path": "c.txt"}]}
    assert head_of(data=mixed).row("Data") == "mixture\npath: <b>.txt\npath: c.txt"
    assert head_of(data={"kind": "localise", "languages": ["de", "fr"]}).row("Languages") == "de, fr"


def test_a_run_from_python_can_be_repeated_from_its_recipe() -> None:
    page = head_of(data={"kind": "text"}, model={"preset": "gpt"})
    assert page.row("Command") == "qkv train runs/x/recipe.yaml --out runs/x-again"
    assert "Command" not in head_of(data={"kind": "memory"}, model={"preset": "gpt"}).texts


def test_nothing_is_said_of_an_empty_directory(tmp_path: Path) -> None:
    assert what_was_trained(Story.read(tmp_path)) is None
    assert "What was trained" not in write_report(tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("encoding", "told"), [("cp1252", True), ("utf-8", False), (None, False)])
def test_an_encoding_that_may_be_wrong_is_named(encoding: str | None, told: bool) -> None:
    data = {"kind": "labelled", "path": "a.csv"} | ({"encoding": encoding} if encoding else {})
    page = head_of(data=data)
    assert ("Encoding" in page.texts) == told
    assert not told or page.row("Encoding") == "cp1252 (data.encoding)"
