"""`qkv quantize`: a directory that the other commands read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import qkv
from qkv.cli import main
from qkv.nn.layers.quantized import QuantizedMatrix


def test_other_commands_read_a_quantized_run(trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "lm"
    shutil.copytree(trained_lm, run)
    assert main(["quantize", str(run), "--weights", "int8", "--embeddings", "--head"]) == 0
    said = capsys.readouterr().out
    assert "perplexity:" in said and "largest errors of weights" in said and f"{run}-int8: the quantized run" in said
    assert main(["generate", f"{run}-int8", "the cat"]) == 0
    assert main(["eval", f"{run}-int8"]) == 0
    assert main(["look", f"{run}-int8", "the cat is", "--out", str(tmp_path / "page.html")]) == 0
    assert (
        main(["quantize", str(run), "--weights", "int8", "--calibrate", "train", "--out", str(tmp_path / "again")]) == 0
    )
    said = capsys.readouterr().out
    assert "errors measured on train: " in said and "calibrated on" not in said
    assert "rounding (rtn) gives the same weights without --calibrate" in said
    loaded = qkv.load(f"{run}-int8", "cpu")
    assert isinstance(loaded.model.decoder.embedding.weight, QuantizedMatrix)
    assert main(["quantize", f"{run}-int8", "--weights", "int4"]) == 2
    assert main(["quantize", str(run), "--weights", "int3"]) == 2
    assert "int8, int4, nf4, fp8, mxfp4" in capsys.readouterr().err
