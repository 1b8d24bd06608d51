"""Panels: what a page draws besides attention, as plain JSON."""

from __future__ import annotations

import json
import math

import pytest

from qkv.look.view.panels import Branch, heat_panel, table_panel, tree_panel


def test_panels_are_plain_json_without_infinities() -> None:
    heat = heat_panel("h", rows=["a"], columns=["x", "y"], values=[[0.5, -math.inf]], texts=[["1", "2"]])
    table = table_panel("t", columns=["n", "v"], rows=[["a", math.nan], ["b", 2]])
    tree = tree_panel("b", [Branch("a", -math.inf, branches=(Branch("b", -1.5, True, "eos"),))])
    assert heat["values"] == [[0.5, None]] and table["rows"] == [["a", None], ["b", 2]]
    assert tree["roots"][0]["value"] is None and tree["roots"][0]["branches"][0]["why"] == "eos"
    for panel in (heat, table, tree):
        assert json.loads(json.dumps(panel, allow_nan=False)) == panel


def test_values_that_do_not_fit_their_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="values don't fit 1 rows and 2 columns"):
        heat_panel("h", rows=["a"], columns=["x", "y"], values=[[0.5]])
