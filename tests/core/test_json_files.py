"""Strict JSON: numbers that are not finite become null at any depth."""

import json
import math

from qkv.core.json_files import dumps, finite


def test_what_is_not_finite_is_null() -> None:
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "ö": True}
    assert finite(value) == {"a": [1.5, None, [None, {"b": None}]], "ö": True}
    assert json.loads(dumps(value)) == finite(value) and "ö" in dumps(value)
    assert math.isnan(value["a"][1])  # the value itself is unchanged
