"""Explanations fit into a terminal of 80 columns, and say which columns don't."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from qkv.learn.explain.registry import EXPLANATIONS, explain
from qkv.learn.explain.steps import matrix
from qkv.learn.explain.terminal import fitting, show


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(name: str):
    file = io.StringIO()
    show(explain(name), Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [
        line for line in lines if "…" in line and "k1 …" not in line and "k3 …" not in line and "k5 …" not in line
    ]


def test_columns_that_do_not_fit_are_named():
    table = matrix(torch.rand(2, 12, generator=torch.Generator().manual_seed(0)), ["a", "b"])
    cut = fitting(table, 40)
    assert len(cut.columns) == 4
    assert cut.note == "This terminal has room for 4 of 12 columns; --out writes a page with the others."
    assert fitting(table, 200) == table
