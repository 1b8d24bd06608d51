"""An explanation as JSON and as a page, and its tables by their captions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from qkv.learn.explain.explanation import Explanation
from qkv.learn.explain.steps import Step, matrix


def test_json_pages_and_tables(tmp_path: Path) -> None:
    table = matrix(torch.tensor([[1.0, -torch.inf]]), ["a"], ["x", "y"], caption="scores of one head")
    made = Explanation("toy", "A title", "Of a test.", (Step("first"), Step("second", tables=(table,))))
    tree = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert [step["title"] for step in tree["steps"]] == ["first", "second"]
    assert tree["steps"][1]["tables"][0]["values"] == [[1.0, None]]
    page = made.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "A title" in page and "Of a test." in page and "//" not in page.replace("http://www.w3.org", "")
    assert made.table("scores") is table
    with pytest.raises(KeyError, match="weights"):
        made.table("weights")
