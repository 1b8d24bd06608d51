"""Schemes: what goes together, and names."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.nn.quantization.scheme import Scheme, check_method, scheme_of


@pytest.mark.parametrize(
    "fields",
    [
        {"weights": "int4", "symmetric": False, "activations": "int8"},
        {"weights": "fp8", "activations": "fp8"},
        {"weights": "nf4"},
    ],
)
def test_schemes_that_go_together_are_accepted(fields: dict[str, Any]) -> None:
    Scheme(**fields).check()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"weights": "nf4", "symmetric": False}, "nf4 has no zero points"),
        ({"weights": "nf4", "activations": "int8"}, "int8 activations go with int8 and int4 weights, not with nf4"),
        ({"weights": "int8", "activations": "fp8"}, "fp8 activations go with fp8 weights, not with int8"),
    ],
)
def test_schemes_that_do_not_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scheme(**fields).check()


def test_names_and_schemes_are_schemes() -> None:
    scheme = scheme_of("int4", group_size=32)
    assert scheme == Scheme(weights="int4", group_size=32) and scheme_of(scheme) is scheme
    assert scheme.format.name == "int4" and check_method("awq") == "awq"
    for wrong in ("int3", 4):
        with pytest.raises(ValueError, match="weights are quantized to int8, int4, nf4, fp8, mxfp4, not"):
            scheme_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no method of quantization 'gtpq'; did you mean 'gptq'"):
        check_method("gtpq")
