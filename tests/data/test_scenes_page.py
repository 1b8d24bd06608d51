"""docs/data-scenes.md: its Python runs, and its commands name what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from qkv.data.source import Source
from qkv.data.task import Item, RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.detection.task import Detect
from qkv.runs.tasks.segmentation.task import Segment

PAGE = (Path(__file__).parents[2] / "docs" / "data-scenes.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^qkv train (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_what_there_is(command: str) -> None:
    name, *settings = shlex.split(command)
    assert Recipe.load(name, settings).task is not None


def test_a_source_of_ones_own_is_what_the_tasks_read(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    try:
        exec(compile(block, "docs/data-scenes.md", "exec"), names)
        assert capsys.readouterr().out == "2\n"
        source = Source.from_dict({"kind": "two-pictures"})
        seen, randomness = Patches(image=(16, 16), patch=(8, 8), after=2), RandomContext(np.random.default_rng(0), True)
        for task in (Segment(), Detect()):
            settled = task.resolve(source, None, seen)
            assert isinstance(settled.item(next(source.examples("train")), None, randomness), Item)
    finally:
        del Source.kinds["two-pictures"]
