"""Recipes and run directories of earlier versions load: keys and values under their old names."""

from __future__ import annotations

import pytest

from qkv.data.source import Source
from qkv.data.task import Task
from qkv.recipes.recipe import Recipe


@pytest.mark.parametrize(
    ("kind", "old"),
    [("classify", "strange"), ("image-classify", "strange"), ("sound", "unseen"), ("detect", "bad")],
)
@pytest.mark.parametrize(("value", "now"), [("refuse", "raise"), ("skip", "skip")])
def test_on_error_of_a_task_loads_under_its_old_name(kind: str, old: str, value: str, now: str) -> None:
    with pytest.warns(UserWarning, match=f"{kind}: '{old}' is now called 'on_error'"):
        task = Task.from_dict({"kind": kind, old: value})
    assert task.on_error == now
    with pytest.warns(UserWarning, match="is now called"):
        assert task.replace({old: "skip"}).on_error == "skip"
    with pytest.raises(ValueError, match=f"'{old}' is the old name of 'on_error', and both are given"):
        Task.from_dict({"kind": kind, old: value, "on_error": now})


@pytest.mark.parametrize(("kind", "old"), [("text", "damaged"), ("scores", "bad")])
def test_on_error_of_a_source_loads_under_its_old_name(kind: str, old: str, tmp_path) -> None:
    given = {"kind": kind, "path": str(tmp_path / "data"), old: "refuse"}
    with pytest.warns(UserWarning, match=f"'{old}' is now called 'on_error'"):
        assert Source.from_dict(given).on_error == "raise"


def test_a_recipe_takes_the_old_name_as_a_setting() -> None:
    with pytest.warns(UserWarning, match="'strange' is now called 'on_error'"):
        assert Recipe.load("classify", ["task.strange=skip"]).task.on_error == "skip"
