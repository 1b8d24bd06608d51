"""Every page of docs/tour runs, and prints and draws what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from qkv.learn.tour.pages import CodeCell, Page, pages, run
from qkv.nn.patterns.basic import causal, window

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tour").glob("[0-9]*.md"))
TRAIN = ("19-inside", "20-pruning")  # pages that take seconds
RUN = [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in TRAIN)) for page in pages()]


def script(path: Path) -> ModuleType:
    """A Python file as a module."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    return module


@pytest.mark.parametrize("page", RUN)
def test_a_page_prints_and_draws_what_it_shows(page: Page, tmp_path: Path):
    with torch.random.fork_rng():
        printed = list(run(page, tmp_path))
    shown = [part.output for part in page.parts() if isinstance(part, CodeCell)]
    assert printed and printed == shown, f"write it again: .venv/bin/python docs/tour.py {page.name}"
    pictures = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert set(pictures) == set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.text))
    for name, drawn in pictures.items():
        kept = (page.path.parent / name).read_text(encoding="utf-8")
        assert alike(kept, drawn, page.name in TRAINED), f"{name} is not what the page draws"


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
TRAINED = ("06-blocks", "19-inside", "20-pruning")
"""Pages that draw trained models, whose weights differ between processors."""


def alike(kept: str, drawn: str, trained: bool = False) -> bool:
    """The same picture up to what another processor computes in the last digits: 0.5 % of a number, 0.02 of a small one; of
    trained models, 3 % and 0.1."""
    share, small = (0.03, 0.1) if trained else (0.005, 0.02)
    if NUMBER.sub("#", kept) != NUMBER.sub("#", drawn):
        return False
    pairs = zip(map(float, NUMBER.findall(kept)), map(float, NUMBER.findall(drawn)), strict=True)
    return all(abs(a - b) <= small + share * max(abs(a), abs(b)) for a, b in pairs)


def test_pictures_are_alike_only_with_the_same_shapes_and_numbers():
    kept = '<rect x="100" y="-2.5" class="bar s0"/>'
    assert alike(kept, kept.replace("100", "100.3")) and alike(kept, kept.replace("-2.5", "-2.51"))
    assert alike(kept, kept.replace("100", "102"), trained=True) and not alike(kept, kept.replace("100", "102"))
    assert not alike(kept, kept.replace("100", "110")) and not alike(kept, kept.replace("-2.5", "2.5"))
    assert not alike(kept, kept.replace("bar", "dot")) and not alike(kept, kept + kept)


def test_every_page_has_a_picture():
    assert [page.name for page in pages() if "![" not in page.text] == []


def test_the_index_and_the_sites_navigation_list_every_page_in_order():
    index = re.findall(r"\]\((\d[^)]+\.md)\)", (ROOT / "docs" / "tour" / "index.md").read_text(encoding="utf-8"))
    navigation = re.findall(r"tour/(\d.+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert index == navigation == [page.name for page in PAGES]


def test_the_landing_picture_is_what_its_script_draws():
    drawn = (ROOT / "docs" / "landing.svg").read_text(encoding="utf-8")
    assert drawn == script(ROOT / "docs" / "landing.py").landing() + "\n", (
        "draw it again: .venv/bin/python docs/landing.py"
    )


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_requests_nothing(tmp_path: Path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//', text), page
        assert not re.findall(r"<code>[^<]*\\\|[^<]*</code>", text), f"{page} shows the backslash of a pipe in a table"
        assert not re.findall(r'<link[^>]+rel="?(?:stylesheet|preconnect|icon)[^>]+href="?(?:https?:)?//', text), page


def test_layers_of_a_window_reach_as_far_as_the_page_says():
    """A window of 256 is the token and 255 before it; the page once said that L layers reach L · 256."""
    page = next(page for page in pages() if page.name == "14-efficient")
    assert "up to L · 255 tokens" in " ".join(page.text.split())
    once = (causal() & window(256)).mask(600).float()
    row = once[599]
    assert [599 - int(row.argmax()), 599 - int((row @ once > 0).int().argmax())] == [255, 2 * 255]
