"""`import qkv`: names that became examples are answered with the file that has them now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import qkv

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["ring", "pool", "KernelRegression"])
def test_a_name_that_is_now_an_example_names_its_file(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"qkv\.{name} is now an example: docs/examples/\w+\.py$") as error:
        getattr(qkv, name)
    example = ROOT / str(error.value).rpartition(" ")[2]
    assert re.search(rf"^(def|class) {name}\b", example.read_text(encoding="utf-8"), re.MULTILINE)
    assert name not in dir(qkv) and not hasattr(qkv, name)


def test_every_name_is_there_and_others_are_not() -> None:
    assert all(getattr(qkv, name) is not None for name in qkv.__all__) and set(qkv.__all__) < set(dir(qkv))
    with pytest.raises(AttributeError, match="module 'qkv' has no attribute 'transformer_'"):
        qkv.transformer_  # noqa: B018
