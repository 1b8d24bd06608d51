"""`FAMILIES`: each family stands under its own model type, and is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import qkv
from qkv.io.families import FAMILIES, family_of

ONE = """
import sys
from qkv.io.families import FAMILIES
FAMILIES["mt5"]
print(*sorted(name for name in sys.modules if name.startswith("qkv.io.families.")))
"""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_family_stands_under_its_model_type(model_type: str) -> None:
    assert FAMILIES[model_type].model_type == model_type


def test_only_the_family_that_is_asked_for_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, timeout=120, check=True)
    assert "qkv.io.families.t5" in done.stdout.split() and "qkv.io.families.bert" not in done.stdout.split()


def test_there_is_no_family_of_another_name() -> None:
    assert "gpt" not in FAMILIES and len(FAMILIES) == len(list(FAMILIES.values()))
    with pytest.raises(KeyError):
        FAMILIES["gpt"]


def test_heads_that_do_not_divide_a_nested_width_are_a_difference() -> None:
    spec = qkv.preset("deit-tiny-distilled", d_model=8, n_layers=1, n_heads=4, d_ff=1, position="rotary")
    with pytest.raises(ValueError, match="no Hub family matches"):
        family_of(spec)
