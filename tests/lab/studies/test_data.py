"""Data of all runs are checked once before a study begins."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from qkv.lab.studies import data
from qkv.lab.studies.data import check_data
from qkv.runs.recipes.recipe import Recipe


def test_equal_data_are_read_once_and_missing_data_are_named(tmp_path: Path) -> None:
    good = Recipe.load("localise", ["data.train=4", "data.validation=2", "data.test=2"])
    with patch.object(data, "first_examples", wraps=data.first_examples) as read:
        check_data({"one": good, "two": good.model_copy(update={"seed": 1})})
    assert read.call_count == 1
    bad = Recipe.load("lm", [f"data.path={tmp_path / 'none.txt'}"])
    with pytest.raises(ValueError, match=r"^other: .*none\.txt"):
        check_data({"one": good, "other": bad})
    with pytest.raises(ValueError, match=r"^no training data"):
        check_data({"translate": Recipe.load("translate")})
