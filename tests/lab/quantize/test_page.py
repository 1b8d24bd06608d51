"""The page of a quantized run: sizes, changes of metrics, and the errors of layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.quantize.page import calibration_title, change, size, write_page
from qkv.lab.quantize.result import QuantizedRun


def result(folder: Path, method: str = "gptq") -> QuantizedRun:
    errors = {f"decoder.blocks.{i}.attention.{name}": 0.01 * (i + 1) for i in range(2) for name in ("q", "k")}
    metrics = {"before": {"loss": 2.0}, "after": {"loss": 2.5}}
    sizes = (3 << 20, 1 << 20)
    return QuantizedRun(
        "runs/big",
        folder,
        "int4",
        method,
        "none",
        dict.fromkeys(errors, 32),
        "lines",
        errors,
        sizes,
        metrics,
        1200,
        "x",
    )


def test_the_page_tells_sizes_changes_and_the_worst_layers(tmp_path: Path) -> None:
    page = write_page(result(tmp_path), tmp_path).read_text()
    assert "big with int4 weights, by GPTQ" in page and "1.0 MiB" in page and "3.00×" in page
    assert "+25.00 %" in page and "On 1,200 examples of x." in page
    assert page.index("decoder.blocks.1.attention.q") < page.index("decoder.blocks.0.attention.q")
    assert "the largest (0.0200) = 1" in page


@pytest.mark.parametrize(("method", "title"), [("rtn", "errors measured on"), ("gptq", "calibrated on")])
def test_rounding_is_measured_and_not_calibrated(method: str, title: str, tmp_path: Path) -> None:
    assert calibration_title(result(tmp_path, method)) == title


def test_sizes_have_their_unit_and_changes_their_sign() -> None:
    assert size(1 << 20) == "1.0 MiB" and size(3 << 30) == "3.00 GiB"
    assert change(2.0, 1.0) == "-50.00 %" and change(0.0, 1.0) == ""
