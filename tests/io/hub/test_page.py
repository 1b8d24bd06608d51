"""What docs/hub.md shows, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.io.directories.build import build
from qkv.io.families import FAMILIES, preset
from qkv.runs.inference.run import Run

PAGE = Path(__file__).parents[3] / "docs" / "hub.md"


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    spec = preset("gpt2", d_model=16, n_layers=1, n_heads=2, vocab_size=20, max_positions=8)
    Run(build(spec), None).save("gpt2-directory", to="hub")
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert (tmp_path / "copy" / "config.json").is_file()
    assert "pooled decoder.blocks.1.attention.v.weight" in capsys.readouterr().out


def test_every_family_and_class_is_listed() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for model_type, family in FAMILIES.items():
        (row,) = [line for line in rows if f"`{model_type}`" in line.split("|")[1]]
        for cls in family.classes:
            assert cls in row or ("…" in row and any(cls.endswith(end) for end in re.findall(r"`…(\w+)`", row))), cls
