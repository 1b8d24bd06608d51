"""The benchmark of threads compares and prints."""

from __future__ import annotations

import pytest
from bench.threads import command


def test_the_table_holds_the_choice_beside_one_and_all_threads() -> None:
    row = {"model": "gpt", "busy": True, "one": 1500, "all": 800, "chosen": 1490, "numbers": [1, 1], "share": 0.99}
    result = {
        "rows": [row],
        "machine": {"processor": "CPU", "cores": 2},
        "code": {"commit": "abc"},
        "versions": {"torch": "2.13.0"},
        "date": "2026-01-02",
        "rounds": 2,
        "load_before": 0.1,
    }
    decoding = {"model": "gpt2", "busy": False, "one": 90, "all": None, "chosen": 160, "numbers": [], "share": 1.78}
    result["rows"] = [row, decoding]
    assert "| gpt2 | quiet | 90 |  | 160 | 1.78 |" in command.table(result)
    assert "| gpt | beside a busy process | 1,500 | 800 | 1,490 with 1 | 0.99 |" in command.table(result)


def test_fixed_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit, match="OMP_NUM_THREADS"):
        command.main(["--quick"])
