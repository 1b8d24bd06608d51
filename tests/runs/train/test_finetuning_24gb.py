"""The table on a 7B model in docs/finetuning-24gb.md is what its commands answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qkv.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "finetuning-24gb.md").read_text(encoding="utf-8")
NUMBER = r" ([\d.]+)(?: GiB)? \|"
ROWS = re.findall(rf"^\| `qkv (cost fit [^`]+)` \|{NUMBER * 4}$", PAGE, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_what_its_command_answers(row: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    memory = {}
    for rows in (1, 8):
        assert main([*row[0].split(), "--rows", str(rows), "--json"]) == 0
        for one in json.loads(capsys.readouterr().out)["settings"]:
            memory[rows, one["recompute"]] = one["memory"]
    sizes = [
        memory[1, "none"]["weights"],
        *(memory[which]["peak"] for which in ((1, "none"), (1, "blocks"), (8, "blocks"))),
    ]
    assert [f"{size / 2**30:.1f}" for size in sizes] == list(row[1:])


def test_the_table_has_three_models_of_two_lengths() -> None:
    assert len(ROWS) == 6 and len({row[0].split()[2] for row in ROWS}) == 3


def test_a_7b_model_in_fp32_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "qwen2-7b", "--adapter", "lora", "--memory", "24GB"]) == 2
    assert "28.4 GiB of it the frozen weights in fp32" in capsys.readouterr().err
