"""Quantized runs are ordinary runs: they load, generate, evaluate and save; what they cost is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from run_untrained import of, words

import qkv
from qkv.lab.quantize import quantize
from qkv.nn.layers.quantized import quantized
from qkv.runs.evaluate.evaluate import evaluate_run


def codes(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if name.endswith((".codes", ".scales"))}


def test_a_translator_is_quantized_and_saved(trained: Path, tmp_path: Path):
    result = quantize(
        trained, tmp_path / "small", weights="int4", group_size=16, method="gptq", examples=16, device="cpu"
    )
    run = qkv.load(result.folder, "cpu")
    assert set(quantized(run.model)) == set(result.errors) and result.calibration == "train: 25 rows, 125 tokens"
    assert isinstance(run.generate("b a c"), str)
    measured = evaluate_run(run, "test")
    assert measured.metrics == pytest.approx(result.metrics["after"], rel=1e-5)
    assert result.metrics["before"].keys() == result.metrics["after"].keys()
    stored = json.loads((result.folder / "quantization.json").read_text())
    assert stored["sizes"][1] < stored["sizes"][0]
    page = (result.folder / "quantization.html").read_text()
    assert "Layers with the largest error" in page and next(iter(result.worst(1))) in page
    with pytest.raises(ValueError, match="this model's are quantized"):
        quantize(result.folder, weights="int8", device="cpu")
    with pytest.raises(ValueError, match="already exists; choose another directory"):
        quantize(trained, tmp_path / "small", weights="int8", device="cpu")
    with pytest.raises(ValueError, match="is the run that is quantized; choose another directory"):
        quantize(trained, trained, weights="int8", overwrite=True, device="cpu")
    assert (trained / "model.safetensors").exists()
    again = run.save(tmp_path / "again", "qkv")
    first, second = codes(run.model), codes(qkv.load(again, "cpu").model)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_without_a_recipe(tmp_path: Path):
    """A model of the Hub is evaluated on the part of a text that calibration leaves, and stays in the Hub's format."""
    of("llama", words(), "continue", max_positions=32).save(tmp_path / "hub", "hub")
    text = tmp_path / "text.txt"
    text.write_text("abc abc abd " * 60)
    result = quantize(tmp_path / "hub", weights="int4", calibrate=text, examples=4, device="cpu")
    assert result.folder == tmp_path / "hub-int4" and result.evaluated_on == "the rest of the calibration text"
    config = json.loads((result.folder / "config.json").read_text())
    assert config["model_type"] == "llama" and config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert quantize(tmp_path / "hub", tmp_path / "other", weights="fp8", device="cpu").metrics == {}


def test_an_encoder_is_calibrated_on_lines_and_compared_with_the_original(tmp_path: Path):
    vocabulary = ["[PAD]", "[UNK]", "[SEP]", *"abcdefgh"]
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "vocab_size": len(vocabulary), "max_positions": 16}
    folder = qkv.build(qkv.preset("bert-base", **sizes, head=False, labels=0)).save(tmp_path / "bert")
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(vocabulary)}, "[UNK]"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(vocabulary[:3])
    raw.post_processor = tokenizers.processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 2)])
    raw.save(str(folder / "tokenizer.json"))
    roles = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    run = qkv.load(folder, device="cpu")
    lines = [" ".join("abcdefgh"[(i * n) % 8] for n in (1, 3, 5, 7)) for i in range(60)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    data, options = tmp_path / "lines.txt", {"weights": "int8", "method": "gptq", "examples": 40}
    result = quantize(run, tmp_path / "int8", calibrate=data, **options)
    assert result.calibration == f"{data}: 40 rows, 200 tokens"
    assert result.evaluated_on == "lines that calibration leaves" and result.examples == 20
    before, after = (result.metrics[which] for which in ("before", "after"))
    assert before["cosine"] == pytest.approx(1) and 0.99 < after["lowest cosine"] <= after["cosine"] < 1 + 1e-6
    (tmp_path / "few.txt").write_text("a b c\n")
    with pytest.warns(UserWarning, match=r"4 tokens in 1 rows, fewer than the widest layer has inputs \(24\)"):
        quantize(run, tmp_path / "few", calibrate=tmp_path / "few.txt", **options)
