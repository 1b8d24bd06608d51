"""Exported graphs are compared with the model before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_models import of_preset

from qkv.runs.export import onnx
from qkv.runs.inference.run import Run


def test_nothing_is_written_if_the_graphs_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.verification, "error", lambda model, graphs: 0.5)
    monkeypatch.setattr(onnx, "traced", lambda graph: None)
    monkeypatch.setattr(onnx, "_translate", lambda *arguments: None)
    with pytest.raises(ValueError, match=r"differ from the model's by 5\.0e-01 .* nothing was written"):
        onnx.to_onnx(Run(of_preset("gpt2", max_positions=32), None), tmp_path / "out")
    assert not list(tmp_path.iterdir())
