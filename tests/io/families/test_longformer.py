"""Longformer: one window for all layers."""

from __future__ import annotations

import json
from pathlib import Path

from hub_cases import transformers
from hub_sizes import SIZES

from qkv.runs.inference.run import load


def test_longformer_may_say_one_window_for_all_layers(tmp_path: Path) -> None:
    hub = transformers.LongformerForMaskedLM(transformers.LongformerConfig(**SIZES, attention_window=6))
    hub.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    config = json.loads(path.read_text())
    assert config["attention_window"] == [6, 6]
    path.write_text(json.dumps({**config, "attention_window": 6}))
    saved = load(tmp_path / "theirs", device="cpu").save(tmp_path / "ours", to="hub")
    assert json.loads((saved / "config.json").read_text())["attention_window"] == 6
