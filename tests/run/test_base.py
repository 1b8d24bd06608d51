"""Training that begins with a trained model: its weights, its tokenizer, adapters, and going on exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_tiny import TINY

from qkv.run.load import load
from qkv.run.recipe import Recipe
from qkv.run.train import train

DATA = tuple(setting for setting in TINY if not setting.startswith("model."))
LORA = "adapter={kind: lora, rank: 2, alpha: 4}"


def recipe(base: Path, *settings: str) -> Recipe:
    return Recipe.load("reverse", [*DATA, f"model={base}", *settings])


def state(folder: Path) -> dict[str, torch.Tensor]:
    return load(folder, device="cpu").model.state_dict()


def test_weights_and_tokenizer_are_the_directorys(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained, "training.optimizer.lr=1e-12"), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, msg=name)
    assert (tmp_path / "tuned/tokenizer.json").read_text() == (trained / "tokenizer.json").read_text()


def test_it_learns_on(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    assert any(not torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("adapter", [(), (LORA,)])
def test_resumed_is_uninterrupted(trained: Path, tmp_path: Path, adapter: tuple[str, ...]) -> None:
    settings = ("training.schedule=constant", *adapter)
    train(recipe(trained, *settings), tmp_path / "whole", device="cpu")
    train(recipe(trained, *settings, "training.max_steps=2"), tmp_path / "parts", device="cpu")
    train(recipe(trained, *settings), tmp_path / "parts", resume=True, device="cpu")
    whole, parts = state(tmp_path / "whole"), state(tmp_path / "parts")
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


def test_an_adapter_moves_only_what_it_adapts(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained, LORA), tmp_path / "tuned", device="cpu")
    before, after = state(trained), state(tmp_path / "tuned")
    moved = {name for name, tensor in before.items() if not torch.equal(after[name], tensor)}
    assert moved and all(".blocks." in name and name.endswith("weight") for name in moved)
    for name in moved:
        change = after[name] - before[name]
        assert torch.linalg.matrix_rank(change, rtol=1e-3) <= 2, name


def test_sizes_are_the_directorys(trained: Path) -> None:
    with pytest.raises(ValueError, match=r"d_model is given by the model in"):
        Recipe.load("reverse", [*DATA, f"model={{directory: {trained}, d_model: 32}}"])


def test_a_directory_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no model in"):
        train(recipe(tmp_path), tmp_path / "out", device="cpu")
