"""Quantized runs are ordinary runs: they load, generate, evaluate and save; what they cost is reported."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path

import pytest
import tokenizers
import torch
from run_untrained import of, vit, words
from small_recipes import RECIPES, SMALL

import qkv
from qkv.cli import main
from qkv.lab.quantize import quantize
from qkv.nn.layers.quantized import QuantizedMatrix, quantized
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import Run
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


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


def test_by_the_command_line(trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "lm"
    shutil.copytree(trained_lm, run)
    assert main(["quantize", str(run), "--weights", "int8", "--embeddings", "--head"]) == 0
    said = capsys.readouterr().out
    assert "perplexity:" in said and "largest errors of weights" in said and f"{run}-int8: the quantized run" in said
    assert main(["generate", f"{run}-int8", "the cat"]) == 0
    assert main(["eval", f"{run}-int8"]) == 0
    assert main(["look", f"{run}-int8", "the cat is", "--out", str(tmp_path / "page.html")]) == 0
    assert (
        main(["quantize", str(run), "--weights", "int8", "--calibrate", "train", "--out", str(tmp_path / "again")]) == 0
    )
    said = capsys.readouterr().out
    assert "errors measured on train: " in said and "calibrated on" not in said
    assert "rounding (rtn) gives the same weights without --calibrate" in said
    loaded = qkv.load(f"{run}-int8", "cpu")
    assert isinstance(loaded.model.decoder.embedding.weight, QuantizedMatrix)
    assert main(["quantize", f"{run}-int8", "--weights", "int4"]) == 2
    assert main(["quantize", str(run), "--weights", "int3"]) == 2
    assert "int8, int4, nf4, fp8, mxfp4" in capsys.readouterr().err


def test_experts_with_few_tokens_are_reported(
    trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm = qkv.load(trained_lm, "cpu")
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "d_ff": 64, "n_experts": 3}
    spec = qkv.preset("mixtral-8x7b", **sizes, vocab_size=lm.model.vocab_size, max_positions=64)
    run, text = tmp_path / "mixture", tmp_path / "text.txt"
    Run(qkv.build(spec, seed=1), lm.tokenizer, task="continue").save(run, to="qkv")
    text.write_text("the dog is 7")
    options = ["--weights", "int4", "--calibrate", str(text), "--no-evaluate"]
    assert main(["quantize", str(run), *options]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "qkv: warning: 9 matrices of experts were rounded to nearest, since few tokens" in said
    stored = json.loads((tmp_path / "mixture-int4" / "quantization.json").read_text())["rounded"]
    assert {len(counts) for counts in stored.values()} == {3} and len(stored) == 3
    page = (tmp_path / "mixture-int4" / "quantization.html").read_text()
    assert "Experts that were rounded" in page and "decoder.blocks.0.feedforward.down" in page


def test_calibration_data(trained: Path, trained_lm: Path, tmp_path: Path):
    run, text = qkv.load(trained_lm, "cpu"), tmp_path / "text.txt"
    text.write_text("the dog is 7 years old and the cat is 3 " * 20)
    for data in ("validation", str(text), ["the dog is 7 years old"]):
        assert quantized(run.quantize("int4", method="awq", calibrate=data, examples=4).model)
    assert not quantized(run.model)
    text.write_text("")
    with pytest.raises(ValueError, match="hold no text"):
        run.quantize("int4", calibrate=text)
    with pytest.raises(ValueError, match="is not there"):
        run.quantize("int4", calibrate=tmp_path / "nothing")
    with pytest.raises(ValueError, match="is a folder"):
        run.quantize("int4", calibrate=tmp_path)
    with pytest.raises(ValueError, match="trained on pairs"):
        qkv.load(trained, "cpu").quantize("int4", calibrate=["b a c"])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        run.quantize("int4", calibrate=tmp_path / "picture.png")
    with pytest.raises(ValueError, match="has no tokenizer"):
        vit().quantize("int8", calibrate=["a"])
    with pytest.raises(ValueError, match=r"no recipe.yaml"):
        of("gpt2", words(), "continue", max_positions=32).quantize("int4", method="gptq")


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


@pytest.mark.parametrize("weights", ["int8", "int4", "nf4", "fp8", "mxfp4"])
@pytest.mark.parametrize("to", ["qkv", "hub"])
def test_saved_bit_for_bit(weights: str, to: str, tmp_path: Path):
    run = of("llama", words(), "continue", {"head.tied": False}, max_positions=32, d_model=32, d_ff=64)
    small = run.quantize(weights, head=True)
    small.save(tmp_path, to)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(qkv.load(tmp_path, "cpu").model(ids), small.model(ids))
    rounded = qkv.load(run.save(tmp_path / "full", to), "cpu", weights=weights)
    assert len(quantized(rounded.model)) == 7  # without the head
    with pytest.raises(ValueError, match="its weights are quantized already; leave out weights="):
        qkv.load(tmp_path, "cpu", weights=weights)


def test_matrices_that_a_family_joins_or_transposes(tmp_path: Path):
    ids = torch.tensor([[5, 6, 7, 8]])
    joined = of("phi-3-mini", words(), "continue", max_positions=32, d_model=32, d_ff=64).quantize(
        "int4", group_size=16
    )
    joined.save(tmp_path / "joined", "hub")
    with torch.no_grad():
        assert torch.equal(qkv.load(tmp_path / "joined", "cpu").model(ids), joined.model(ids))
    transposed = of("gpt2", words(), "continue", max_positions=32).quantize("int8")
    with pytest.raises(ValueError, match="transposed"):
        transposed.save(tmp_path / "transposed", "hub")
    with pytest.warns(UserWarning, match="model type 'qkv'"):
        transposed.save(tmp_path / "own")
    assert qkv.load(tmp_path / "own", "cpu").model.spec == transposed.model.spec
    tables = of("llama", words(), "continue", max_positions=32).quantize("int8", embeddings=True)
    with pytest.raises(ValueError, match="no quantized embeddings"):
        tables.save(tmp_path / "tables", "hub")


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


def test_an_embedder_is_compared_by_its_metric_and_its_embeddings(tmp_path: Path):
    name, settings = RECIPES["similarity"]
    train(Recipe.load(name, [*SMALL, *settings]), tmp_path / "run", device="cpu")
    result = quantize(tmp_path / "run", tmp_path / "small", weights="int4", group_size=8, device="cpu")
    before, after = result.metrics["before"], result.metrics["after"]
    assert before["cosine"] == pytest.approx(1) and after["lowest cosine"] <= after["cosine"] < 1
    texts = list(islice(Recipe.load(tmp_path / "run").data.texts("test"), 64))
    vectors = [run.embed(texts) for run in (qkv.load(tmp_path / "run", "cpu"), qkv.load(tmp_path / "small", "cpu"))]
    cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in zip(*vectors, strict=True)]
    assert after["cosine"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-5)
    assert before.keys() - {"cosine", "lowest cosine"}  # the recipe's own metrics
