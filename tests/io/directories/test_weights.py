"""Weights of runs: tied ones stay tied, and an outline has the same values."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from qkv.io.directories import weights
from qkv.runs.inference.run import load


def test_tied_weights_are_stored_once_and_stay_tied(trained: Path) -> None:
    run = load(trained, device="cpu")
    stored = [name for name in load_file(trained / "model.safetensors") if "embedding" in name or "head" in name]
    assert len(stored) == 1
    assert run.model.head is not None and run.model.decoder is not None and run.model.encoder is not None
    assert run.model.head.weight is run.model.decoder.embedding.weight is run.model.encoder.embedding.weight


def test_an_outline_gives_the_values_of_the_model_one_at_a_time(trained: Path) -> None:
    run, path = load(trained, device="cpu"), trained / "model.safetensors"
    model, values = weights.outline(run.model.spec, path, torch.device("cpu"), torch.float64)
    assert all(parameter.is_meta for parameter in model.parameters())
    for name, parameter in run.model.named_parameters():
        assert torch.equal(values.value(name), parameter.double()), name


def test_weights_of_another_model_are_refused_by_the_name_of_the_file(trained: Path, trained_lm: Path) -> None:
    path = trained_lm / "model.safetensors"
    with pytest.raises(ValueError, match=re.escape(str(path))):
        weights.load(load(trained, device="cpu").model.spec, path, torch.device("cpu"))
