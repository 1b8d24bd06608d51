"""`python -m bench serving`: its table."""

from bench.serving.command import OFFERED, table
from bench.serving.peer import LIBRARIES

from bench import machine


def test_every_library_can_be_called() -> None:
    assert set(OFFERED) == set(LIBRARIES)


def test_the_table_says_shares_ratios_and_who_is_missing() -> None:
    rates = {"qkv": [40.0, 44.0, 42.0], "llama.cpp": [42.0]}
    case = {"batch": 1, "precision": "fp32", "date": "2026-11-24", "machine": machine.describe(), "rounds": 3}
    case |= {"code": {"commit": "abc"}, "load_before": 0.0, "threads": 2, "versions": {"qkv": "torch 2"}}
    case |= {"tokens_per_s": rates, "first": {"qkv": [1], "llama.cpp": [2]}, "gb_per_s": 20.0}
    text = table(
        {"cases": [{**case, "failed": {"OpenVINO": "no interpreter given", "llama.cpp": "ValueError: one row"}}]}
    )
    assert "| qkv, 104% of 20 GB/s | 42.0 | | ≥ 85%: reached |" in text
    assert "| llama.cpp F32, other tokens | 42.0 | 1.00 | ≥ 1.1: **not reached** |" in text
    assert "| OpenVINO: not measured | | | |" in text and "| llama.cpp: not measured, one row | | | |" in text
