"""`python -m bench encoding`: its work, its errors and its table."""

import pytest
from bench.encoding import command
from bench.encoding.peer import LIBRARIES

from bench import machine


def test_every_library_can_be_called() -> None:
    assert set(command.OFFERED) == set(LIBRARIES)


def test_errors_are_relative() -> None:
    assert command.error([[3.0, 4.5]], [[3.0, 4.0]]) == pytest.approx(0.1)


def test_the_table_says_ratios_errors_and_who_is_missing() -> None:
    case = {"model": "BERT-base", "precision": "int8", "date": "2026-11-27", "machine": machine.describe(), "rounds": 3}
    case |= {"code": {"commit": "abc"}, "load_before": 0.0, "threads": 2, "versions": {"qkv": "torch 2"}}
    case |= {"rows_per_s": {"qkv": [10.0, 12.0, 13.0], "OpenVINO": [10.0]}, "errors": {"qkv": 0.01, "OpenVINO": 0.02}}
    text = command.table({"cases": [{**case, "failed": {"ONNX Runtime": "no interpreter given"}}]})
    assert "| BERT-base | int8 | qkv | 12.0 | | | 1.0e-02 |" in text
    assert "| BERT-base | int8 | OpenVINO | 10.0 | 1.20 | ≥ 1.2: reached | 2.0e-02 |" in text
    assert "| BERT-base | int8 | ONNX Runtime: no interpreter given | | | | |" in text
