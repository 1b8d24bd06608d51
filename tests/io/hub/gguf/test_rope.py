"""Llama 3's factors in a GGUF file: equal to transformers', and its parameters found again."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from gguf_models import made
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from qkv.io.directories.hub_save import config_of
from qkv.io.hub.gguf.rope import FREQUENCIES, factor_tensors, read_scaling, with_factors
from qkv.runs.export.gguf import save

NAMES = ["llama3", "llama3, other factors"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_divides_the_rates_as_transformers_does(name: str, tmp_path: Path) -> None:
    model = made(name)
    path = save(model, tmp_path / "model.gguf")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    theirs = LlamaConfig(**config_of(model.spec, torch.float32))
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, torch.device("cpu"))
    base = theirs.rope_parameters["rope_theta"] ** (-torch.arange(0, 32, 2) / 32)
    torch.testing.assert_close(torch.tensor(tensors[FREQUENCIES].data), base / scaled)


@pytest.mark.parametrize("name", NAMES)
def test_factors_alone_give_the_same_rates(name: str) -> None:
    config = config_of(made(name).spec, torch.float32)
    tensors, theta = factor_tensors(config), config["rope_parameters"]["rope_theta"]
    bare = config | {"rope_parameters": {"rope_theta": theta, "rope_type": "default"}}
    again = factor_tensors(with_factors(bare, tensors))
    torch.testing.assert_close(again[FREQUENCIES], tensors[FREQUENCIES], rtol=1e-4, atol=0)


def test_factors_of_another_kind_are_refused() -> None:
    bare = {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}
    with pytest.raises(ValueError, match="no scaling of Llama 3's kind gives"):
        with_factors(bare, {FREQUENCIES: torch.tensor([1.0, 5.0, 2.0, 3.0])})


def test_a_factor_without_a_type_is_linear_as_in_llama_cpp() -> None:
    assert read_scaling({"rope.scaling.factor": 2.0})["factor"] == 2.0
    assert read_scaling({"rope.scaling.factor": 2.0})["rope_type"] == "linear"
    assert read_scaling({"rope.scaling.type": "none", "rope.scaling.factor": 2.0})["rope_type"] == "default"
    assert read_scaling({"rope.scaling.factor": 0.0})["rope_type"] == "default"


@pytest.mark.parametrize("kind", [{}, {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}])
def test_a_factor_of_rotated_vectors_is_refused_without_longrope(kind: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"rope\.scaling\.attn_factor is 2\.0, which is"):
        with_factors({"rope_parameters": read_scaling({**kind, "rope.scaling.attn_factor": 2.0})}, {})
