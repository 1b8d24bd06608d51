"""What a directory says of its quantized weights: in its configuration, in a file beside it, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.io.hub.quantized.config import KEY, SEPARATE, layout_of, quantization_of


def test_the_configuration_comes_before_a_separate_file(tmp_path: Path) -> None:
    assert quantization_of({}, tmp_path) is None
    for name, method in SEPARATE.items():
        (tmp_path / name).write_text(json.dumps({"bits": 4}))
        assert quantization_of({}, tmp_path) == {"quant_method": method, "bits": 4}
        assert quantization_of({KEY: {"quant_method": "x"}}, tmp_path) == {"quant_method": "x"}
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"config\.json: quantization_config is to be an object, not 4"):
        quantization_of({KEY: 4}, tmp_path)


@pytest.mark.parametrize(
    ("given", "layout"),
    [
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "BitsAndBytes"),
        ({"quant_method": "bitsandbytes_4bit", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "BitsAndBytes"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "GPTQ"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "AWQ"),
    ],
)
def test_a_method_has_its_layout(given: dict[str, Any], layout: str) -> None:
    assert type(layout_of(given, "x")).__name__ == layout


def test_a_method_that_is_not_read_is_named_with_those_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"x: the key 'quantization_config' names the method 'aqwq', which is not read; .*awq"
    ):
        layout_of({"quant_method": "aqwq"}, "x")
