"""Header detection: column names are told apart from examples."""

from __future__ import annotations

import pytest

from qkv.data.files.csv_header import is_heading


@pytest.mark.parametrize(
    "names", ["id english german", "source target", "de en", "Deutsch Englisch", "sentence1 sentence2"]
)
def test_headings(names: str) -> None:
    assert is_heading(names.split())


@pytest.mark.parametrize(
    "cells", [["hello", "hallo"], ["Go.", "Geh."], ["no", "nein"], ["text", "text"], ["en"], ["", "de"]]
)
def test_first_examples_are_no_headings(cells: list[str]) -> None:
    assert not is_heading(cells)
