"""Windows of Gemma's layers in GGUF: of all layers but the last of each period."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.io.hub.gguf.windows import FULL, PATTERN, SLIDING, GGUFWindows

S, F = SLIDING, FULL


def test_the_usual_layers_are_written_as_a_window_alone() -> None:
    config = {"layer_types": [S, S, F, S, S, F, S], "sliding_window": 9, "max_position_embeddings": 64}
    assert GGUFWindows(3).write(config) == {"attention.sliding_window": 9}
    assert GGUFWindows(3).read({"block_count": 7, "attention.sliding_window": 9}) == {
        "sliding_window": 9,
        "layer_types": config["layer_types"],
    }


def test_layers_without_windows_have_one_as_long_as_the_context() -> None:
    config = {"layer_types": [F, F], "sliding_window": 9, "max_position_embeddings": 64}
    assert GGUFWindows(2).write(config) == {"attention.sliding_window": 64}


def test_other_layers_are_read_by_their_list_and_not_written() -> None:
    pattern = np.array([True, True, False, False])
    assert GGUFWindows(2).read({"block_count": 3, PATTERN: pattern})["layer_types"] == [S, S, F]
    assert GGUFWindows(2).read({"block_count": 4, PATTERN: 4})["layer_types"] == [S, S, S, F]
    assert GGUFWindows(2).read({"block_count": 2, PATTERN: 0})["layer_types"] == [F, F]
    with pytest.raises(ValueError, match="layers slide but for the last of each 2"):
        GGUFWindows(2).write({"layer_types": [F, S], "sliding_window": 4, "max_position_embeddings": 9})


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "block_count must be a number of layers, not None"),
        ({"block_count": True}, "block_count must be a number of layers"),
        ({"block_count": 3, PATTERN: np.array([True])}, "has 1 entries for 3 layers"),
        ({"block_count": 3, PATTERN: "x"}, "must be a number or one entry for each layer, not 'x'"),
        ({"block_count": 3, PATTERN: -1}, "must be a number or one entry"),
    ],
)
def test_damaged_metadata_are_refused(metadata: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GGUFWindows(2).read(metadata)
