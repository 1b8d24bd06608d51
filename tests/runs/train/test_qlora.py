"""QLoRA: an adapter trained by a recipe over a base whose weights are rounded to 4 bits while it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_tiny import TINY
from safetensors.torch import load_file

from qkv.nn.layers.lora import LoRA, adapt, layers
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.quantization.scheme import Scheme
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

DATA = tuple(setting for setting in TINY if not setting.startswith("model."))
LORA = "adapter={kind: lora, rank: 2, alpha: 4}"


def recipe(base: Path, *settings: str, weights: str = "nf4") -> Recipe:
    model = f"model={{directory: {base}, weights: {weights}}}"
    return Recipe.load("reverse", [*DATA, model, "training.schedule=constant", *settings])


def test_trained_over_codes_resumed_exactly_and_merged(trained: Path, tmp_path: Path) -> None:
    train(recipe(trained, LORA), tmp_path / "whole", device="cpu")
    train(recipe(trained, LORA, "training.max_steps=2"), tmp_path / "parts", device="cpu")
    train(recipe(trained, LORA), tmp_path / "parts", resume=True, device="cpu")
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(torch.equal(parts[name], whole[name]) for name in whole)
    rounded = load(trained, "cpu", weights="nf4").model
    tuned = load(tmp_path / "whole", "cpu").model
    assert not quantized(tuned) and quantized(rounded)
    adapter = load_file(next((tmp_path / "whole/checkpoints").glob("*/model.safetensors")))
    for path, matrix in quantized(rounded).items():
        low = adapter[f"{path}.lora_b"] @ adapter[f"{path}.lora_a"]
        torch.testing.assert_close(tuned.get_submodule(path).weight.detach(), matrix.dense() + 2 * low)
    full, again = rounded.state_dict(), tuned.state_dict()
    assert all(torch.equal(tensor, full[name]) for name, tensor in again.items() if name in full)


def test_a_quantized_directory_is_a_base_too(trained: Path, tmp_path: Path) -> None:
    load(trained, device="cpu").quantize("int4", group_size=16).save(tmp_path / "small", "qkv")
    chosen = Recipe.load("reverse", [*DATA, f"model={tmp_path / 'small'}", LORA, "training.max_steps=2"])
    assert chosen.model.stored == "int4"
    train(chosen, tmp_path / "tuned", device="cpu")
    with pytest.raises(ValueError, match=r"its weights are quantized already; leave out"):
        train(recipe(tmp_path / "small", LORA), tmp_path / "twice", device="cpu")
    assert not (tmp_path / "twice").exists()


@pytest.mark.parametrize("weights", ["nf4", "int4", "int8"])
def test_loss_and_gradients_match_the_dequantized_base(trained: Path, weights: str) -> None:
    codes = load(trained, "cpu").model.train()
    dense = load(trained, "cpu").model.train()
    quantize(codes, Scheme(weights=weights, group_size=16))  # type: ignore[arg-type]
    with torch.no_grad():
        for path, matrix in quantized(codes).items():
            dense.get_submodule(path).weight.copy_(matrix.dense())
    ids = torch.randint(5, 9, (3, 6), generator=torch.Generator().manual_seed(0))
    losses, gradients = [], []
    for model in (codes, dense):
        adapt(model, LoRA(rank=2), seed=1)
        generator = torch.Generator().manual_seed(2)
        for layer in layers(model).values():
            torch.nn.init.normal_(layer.lora_b, generator=generator)
        loss = model.double().eval()(ids, ids, labels=ids).loss
        loss.backward()
        losses.append(loss.detach())
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    torch.testing.assert_close(*losses)
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-6, atol=1e-12, msg=name)


def test_bad_settings_are_refused_before_anything_is_written(trained: Path, tmp_path: Path) -> None:
    for settings, said in (
        ((), "nf4 weights of .* don't train; train an adapter over them"),
        ((LORA, "model.weights=int3"), "int8"),
        ((LORA, "model={preset: transformer, weights: nf4}"), "quantizes a trained model, and transformer starts"),
    ):
        with pytest.raises(ValueError, match=said):
            train(recipe(trained, *settings), tmp_path / "out", device="cpu")
        assert not (tmp_path / "out").exists()
