"""Quantizing the weights of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from run_untrained import of, words

import qkv
from qkv.cli import main
from qkv.runs.inference.run import Run


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


def test_matrices_that_a_family_joins_are_saved_for_the_hub_and_transposed_ones_are_not(tmp_path: Path):
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
