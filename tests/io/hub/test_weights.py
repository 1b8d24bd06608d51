"""What is told of the numbers in files of weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

import pytest
import torch

import qkv
from qkv.io.directories.build import build
from qkv.io.families import preset

SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 20, "max_positions": 16}
LAST = "decoder.blocks.1.feedforward.down.weight"


def said_of(path: Path, dtype: str | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        qkv.load(path, dtype=dtype, device="cpu")
    return [str(one.message) for one in told if "infinite" in str(one.message)]


@pytest.mark.parametrize("to", ["hub", "qkv"])
@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 1e5, 1.0])
def test_nan_and_infinite_weights_are_told_once_with_the_names_of_their_tensors(
    number: float, to: Literal["hub", "qkv"], tmp_path: Path
) -> None:
    model = build(preset("gpt2", **SMALL), seed=2)
    tensor = dict(model.named_parameters())[LAST]
    with torch.no_grad():
        tensor.view(-1)[-1] = number
        model.get_parameter("decoder.norm.weight")[0] = number
    path = model.save(tmp_path / "model", to)
    found = said_of(path)
    assert len(found) == (abs(number) != 1 and abs(number) != 1e5)
    if found:
        assert (
            f"NaN or infinite numbers in '{LAST}', 'decoder.norm.weight'" in found[0]
            and "may have diverged" in found[0]
        )
    half = said_of(path, "float16")
    assert len(half) == (number != 1.0)
    assert ("numbers above float16's largest, 65504" in "".join(half)) == (number == 1e5)
    assert bool(said_of(path, "bfloat16")) == bool(found)
