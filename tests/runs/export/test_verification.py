"""Exported graphs are compared with the model before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run

SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 60}


def built(name: str, **sizes: Any) -> Any:
    return qkv.build(qkv.preset(name, **{**SIZES, **sizes}), seed=5).eval()


def test_nothing_is_written_where_the_graphs_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.verification, "error", lambda model, graphs: 0.5)
    monkeypatch.setattr(onnx, "traced", lambda graph: None)
    monkeypatch.setattr(onnx, "_translate", lambda *arguments: None)
    with pytest.raises(ValueError, match=r"differ from the model's by 5\.0e-01 .* nothing was written"):
        onnx.to_onnx(Run(built("gpt2", max_positions=32), None), tmp_path / "out")
    assert not list(tmp_path.iterdir())
