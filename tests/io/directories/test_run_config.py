"""`config.json` and `generation_config.json` of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qkv
from qkv.io.directories.run_config import read_config
from qkv.runs.inference.run import load


def test_paths_that_hold_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no run directory"):
        load(tmp_path / "none")
    with pytest.raises(
        ValueError, match=r"is not a run directory, because it has no config\.json; name one that `qkv train`"
    ):
        load(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.safetensors").touch()
    with pytest.raises(ValueError, match=r"is not a run directory.*; name one inside it, such as \S+one"):
        load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        load(tmp_path / "file")


def test_a_part_that_nobody_has_defined_here_is_told_with_what_to_do(tmp_path: Path) -> None:
    spec = qkv.preset("gpt2", vocab_size=7, d_model=8, n_layers=1, n_heads=2).to_dict()
    spec["decoder"]["norm"] = {"kind": "half-test"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qkv", "task": "continue", "qkv": spec}))
    with pytest.raises(ValueError, match=r"there is no norm 'half-test'; .*import its module, then call qkv\.load"):
        read_config(tmp_path / "config.json")
