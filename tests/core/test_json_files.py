"""Strict JSON: numbers that are not finite become null at any depth."""

import json
import math
from pathlib import Path

from qkv.core.json_files import dumps, finite, rows_in


def test_what_is_not_finite_is_null() -> None:
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "ö": True}
    assert finite(value) == {"a": [1.5, None, [None, {"b": None}]], "ö": True}
    assert json.loads(dumps(value)) == finite(value) and "ö" in dumps(value)
    assert math.isnan(value["a"][1])  # the value itself is unchanged


def test_rows_are_one_list_in_a_json_and_else_lines() -> None:
    rows = [{"a": 1}, {"a": "b\n"}]
    for name in ("x.json", "x.JSON"):
        assert json.loads(rows_in(Path(name), rows)) == rows
    assert json.loads(rows_in(Path("x.json"), [])) == []
    assert [json.loads(line) for line in rows_in(Path("x.jsonl"), rows).splitlines()] == rows
