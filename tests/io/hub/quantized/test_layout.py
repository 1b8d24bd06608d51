"""Which quantization_config is read, and what is said of others."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.io.hub.quantized import layout_of


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, "bits is 3, and GPTQ's weights are read with 4 or 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version is 'gemv'"),
        ({"quant_method": "awq", "bits": 8}, "bits is 8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"),
        ({"quant_method": "aqlm"}, "names the method 'aqlm', which is not read"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"format": "marlin-24"}}}, "'marlin-24'"),
        ({"quant_method": "compressed-tensors"}, "quantization_config: it has no 'config_groups'"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {}},
            "config_groups should have at least 1 item, not 0",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": 3}}},
            "g.weights should be an object",
        ),
        ({"quant_method": ["gptq"]}, "quant_method should be a text, not \\['gptq'\\]"),
        ({"quant_method": "gptq", "bits": 4.0}, "bits should be a whole number, not 4.0"),
    ],
)
def test_layouts_that_are_not_read_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout_of(config, "config.json")
