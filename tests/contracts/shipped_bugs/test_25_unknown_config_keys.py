"""Bug 25 of those that others shipped: unknown config keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from small import (
    spec,
)

from qkv.nn.models.transformer import Transformer
from qkv.nn.patterns.basic import causal, window
from qkv.nn.positions.bias import ALiBi


def test_bug_25_an_unknown_config_field_is_an_error() -> None:
    """At every depth of a model's JSON, one field more is refused by its name, and nothing is built."""
    data = json.loads(spec("encoder-decoder", causal() & window(3), ALiBi()).to_json())
    places = list(_objects(data))
    assert len(places) > 15
    for place in places:
        place["n_haeds"] = 8
        with pytest.raises(ValueError, match=r"n_haeds|a run of blocks is"):
            Transformer.from_dict(data)
        del place["n_haeds"]
    assert Transformer.from_dict(data).to_json() == json.dumps(data, indent=2)
    with pytest.raises(ValueError, match="no pattern 'sliding'"):
        Transformer.from_dict(json.loads(json.dumps(data).replace('"kind": "window"', '"kind": "sliding"')))


def _objects(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _objects(item)
