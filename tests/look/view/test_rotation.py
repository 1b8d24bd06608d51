"""The part of rotary positions in a score."""

from __future__ import annotations

import json
import math

import pytest
import torch

from qkv.io.families import preset
from qkv.look.view.attention import layer_weights
from qkv.look.view.score import score_breakdown
from qkv.nn.activations import record
from qkv.nn.attention import tap
from qkv.nn.models.build import build

ROTARY = {
    "half": {"kind": "rotary"},
    "interleaved": {"kind": "rotary", "pairs": "interleaved"},
    "half the coordinates": {"kind": "rotary", "fraction": 0.5},
    "yarn": {"kind": "rotary", "scaling": {"kind": "yarn", "factor": 4.0, "original_max_positions": 4}},
    "xpos": {"kind": "xpos", "scale_base": 16.0},
}


@pytest.mark.parametrize("scheme", ROTARY)
def test_rotary_positions_have_their_part_of_the_score(scheme: str) -> None:
    spec = preset("llama", vocab_size=20, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=16)
    model = build(spec.replace({"decoder.position": ROTARY[scheme]}), seed=0).eval()
    name = "decoder.layers.1.attention"
    with tap.record_attention() as requests, record(model, [f"{name}.q", f"{name}.k"]) as before, torch.no_grad():
        model(torch.arange(9)[None])
    layer = layer_weights([requests[1]], 1, range(9), range(9))
    for query, key in ((7, 2), (8, 8), (5, 0)):
        one = score_breakdown(layer, 3, query, key, ("a", "b"), model)
        plain = before[f"{name}.q"][0, query, 3].double() @ before[f"{name}.k"][0, key, 1].double()
        assert one.rotation is not None
        assert one.rotation.content == pytest.approx(float(plain) * one.scale, abs=1e-6)
        assert one.rotation.content + one.rotation.term == pytest.approx(one.scaled, abs=1e-6)
        assert one.score == pytest.approx(one.scaled, abs=1e-6)
        assert sum(one.rotation.pairs) == pytest.approx(one.rotation.term, abs=1e-6)
        assert len(one.rotation.pairs) == len(one.rotation.angles) == (2 if "half the" in scheme else 4)
        if "yarn" not in scheme:
            turned = math.remainder(query - key, 2 * math.pi)  # the fastest pair turns by 1 rad from token to token
            assert one.rotation.angles[0] == pytest.approx(turned, abs=1e-5)
            assert one.rotation.angles[1] == pytest.approx(
                (query - key) * 10000 ** (-2 * 1 / (4 if "the" in scheme else 8)), abs=1e-5
            )
    assert "without rotary positions:" in str(one) and f"[0] {one.rotation.pairs[0]:+.3f} at " in str(one)
    assert json.loads(json.dumps(one.to_json()))["rotation"]["term"] == one.rotation.term
    assert score_breakdown(layer, 3, 7, 2, ("a", "b")).rotation is None  # no model, no rotation
