"""What a graph can't say is refused by name, before anything is written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import qkv
from qkv.cli import main
from qkv.io.directories.build import build
from qkv.runs.export import support
from qkv.runs.export.onnx import to_onnx
from qkv.runs.inference.run import Run

SIZES: dict[str, Any] = {"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 20}


ATTENTION, ENCODER = "decoder.blocks.0.attention", "encoder.blocks.0.attention"


@pytest.mark.parametrize(
    "preset, changes, said",
    [
        ("gpt2", {ATTENTION: {"kind": "lsh-attention", "n_heads": 2}}, f"{ATTENTION}, lsh-attention"),
        ("gpt2", {ATTENTION: {"kind": "linear-attention", "n_heads": 2}}, "linear-attention, is not causal"),
        ("bert-base", {ENCODER: {"kind": "global-attention", "n_heads": 2}}, "global-attention, for which there is no"),
        (
            "bert-base",
            {ENCODER: {"kind": "linformer", "n_heads": 2, "rank": 4, "max_positions": 16}},
            "linformer, for which there is no graph",
        ),
    ],
)
def test_what_the_format_can_not_hold_is_refused(preset: str, changes: dict[str, Any], said: str) -> None:
    model = build(qkv.preset(preset, **SIZES, max_positions=16).replace(changes))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=said):
        support.check(model, "ONNX")


def test_other_models_are_refused_by_their_kind() -> None:
    other = SimpleNamespace(spec=SimpleNamespace(kind="mine"))
    with pytest.raises(ValueError, match="this is a model of the kind 'mine'; use it with qkv"):
        support.check(other, "ONNX")


def test_refused_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lsh = {"decoder.blocks.0.attention": {"kind": "lsh-attention", "n_heads": 2}}
    spec = qkv.preset("gpt2", **SIZES, max_positions=16).replace(lsh)
    run = Run(build(spec), None).save(tmp_path / "run", to="qkv")
    assert main(["convert", str(run), str(tmp_path / "out"), "--to", "onnx"]) == 2
    assert "ONNX can't say decoder.blocks.0.attention, lsh-attention" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    run = Run(build(qkv.preset("gpt2", **SIZES, max_positions=16)), None)
    said = r"export to ONNX needs onnxscript, which is not installed: pip install 'qkv\[onnx\]'"
    with pytest.raises(ValueError, match=said):
        to_onnx(run, tmp_path / "out")
    assert not list(tmp_path.iterdir())
