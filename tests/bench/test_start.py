"""`python -m bench start`: its model and its table."""

import json
import sys
from pathlib import Path

import pytest
from bench.start import TORCH, _as_others_write_it, steps_table, table, until_output
from safetensors import safe_open

import qkv
from bench import machine


def test_the_directory_is_one_as_other_libraries_write_it(tmp_path: Path) -> None:
    model = qkv.build(qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=2, vocab_size=64, max_positions=16), seed=0)
    model.save(tmp_path, to="hub")
    _as_others_write_it(tmp_path)
    assert "qkv" not in json.loads((tmp_path / "config.json").read_text())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert all(map(lambda a, b: a.equal(b), model.parameters(), qkv.load(tmp_path, "cpu").model.parameters()))


def test_time_until_a_process_prints_and_one_that_fails() -> None:
    assert 0 < until_output([sys.executable, "-S", "-c", "print(1)"]) < 20
    with pytest.raises(SystemExit, match="ended with status 3"):
        until_output([sys.executable, "-S", "-c", "raise SystemExit(3)"])


def test_the_table_says_what_is_reached() -> None:
    result = {"date": "2026-11-24", "machine": machine.describe(), "code": {"commit": "abc"}, "load_before": 0.0}
    rows = [{"what": TORCH, "seconds": [1.0, 1.2, 1.1]}, {"what": "qkv generate", "seconds": [1.9, 1.7, 1.8]}]
    versions = {"python": "3", "torch": "2"}
    text = table({**result, "versions": versions, "rounds": 3, "rows": rows, "over_torch": [0.9, 0.5, 0.7]})
    assert "| `qkv generate`, one token | 1.80 | ≤ 2.0: reached |" in text and "0.70 | ≤ 0.5: **not reached** |" in text


def test_the_table_of_first_steps_has_the_smallest_readings() -> None:
    assert steps_table({"reverse": [(4.0, 3.5), (3.0, 3.75)]}).splitlines()[-1] == "| reverse | 3.00 | 3.50 |"
