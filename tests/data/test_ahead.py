"""Texts drawn ahead by another process: the same as drawn here, also if it fails, and nothing stays behind."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from qkv.cli.train import _draw_ahead
from qkv.data import ahead
from qkv.data.source import Source
from qkv.data.synthetic.localise import Localise
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import texts_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pread"), reason="another process needs os.pread")
SOURCE = Localise(train=1500)


@pytest.fixture(autouse=True)
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    yield
    ahead.end()


def test_another_process_draws_the_texts_of_the_source() -> None:
    ahead.begin(SOURCE)
    (drawing,) = ahead._started
    recipe = Recipe.load("localise", ["data.train=1500"])
    assert list(texts_of(recipe, "train")) == list(SOURCE.texts("train"))
    assert drawing.process.wait() == 0 and drawing.file.tell() > 50_000
    ahead.end()
    assert drawing.file.closed and not ahead._started


def test_what_a_killed_process_has_not_drawn_is_drawn_here() -> None:
    ahead.begin(SOURCE)
    (drawing,) = ahead._started
    texts = drawing.texts()
    first = list(itertools.islice(texts, 10))
    os.kill(drawing.process.pid, signal.SIGKILL)
    assert [*first, *texts] == list(SOURCE.texts("train"))


def test_other_texts_are_drawn_here() -> None:
    ahead.begin(SOURCE)
    other = Source.from_dict({"kind": "reverse", "train": 20})
    assert list(ahead.training_texts(other)) == list(other.texts("train"))
    ahead.begin(other)
    assert len(ahead._started) == 1, "its texts take no time"


def test_a_recipe_that_comes_with_qkv_is_begun_with_its_settings() -> None:
    _draw_ahead("localise", ["data.languages=[pl]", "data.train=50", "seed=3"])
    (drawing,) = ahead._started
    assert drawing.source == Recipe.load("localise", ["data.languages=[pl]", "data.train=50"]).data
    _draw_ahead("localise", ["data.languages=[pl"])
    _draw_ahead("runs/localise", [])
    _draw_ahead("reverse", [])
    assert ahead._started == [drawing]
