"""What a pruning says of itself: elbows of its curves, ranks by layer, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

from qkv.lab.prune.result import PruningResult


def result(**more: object) -> PruningResult:
    curve = [(0.0, {"loss": 1.0, "bleu": 9.0}), (0.5, {"loss": 1.1, "bleu": 8.0}), (0.9, {"loss": 3.0, "bleu": 7.2})]
    return PruningResult("run", Path("out"), "gradient", {}, {}, {}, {}, curve, (2, 1), {}, 4, **more)  # type: ignore[arg-type]


def test_a_bent_curve_has_an_elbow_and_a_straight_one_has_none() -> None:
    assert result().elbows == {"loss": 0.5}


def test_ranks_stand_by_layer_and_matrix() -> None:
    ranks = {
        "decoder.blocks.0.attention.q": 16,
        "decoder.blocks.0.attention.k": 8,
        "decoder.blocks.1.feedforward.up": 4,
    }
    assert result(ranks=ranks).ranks_by_layer() == {
        "decoder.0.attention": {"q": 16, "k": 8},
        "decoder.1.feedforward": {"up": 4},
    }


def test_json_has_the_folder_and_the_elbows() -> None:
    found = json.loads(result().to_json())
    assert found["folder"] == "out" and found["elbows"] == {"loss": 0.5} and found["parameters"] == [2, 1]
