"""Translators of our own preset are saved as PEGASUS (pre-norm) or Marian (post-norm), with the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.data.tokenizers.tokenizer import train
from qkv.io.directories.build import build
from qkv.io.families import family_of, preset
from qkv.io.hub.equivalent import equivalent, equivalent_spec
from qkv.runs.inference.run import Run, load

TEXTS = ["the cat sat", "the dog", "vor drei Tagen and the mat"]
TOKENIZER = train("char", ["the cat sat on the mat and the dog ran", "vor drei Tagen"])
SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": TOKENIZER.vocab_size}


def translator(**sizes: Any) -> Run:
    """A translator with random weights, such that outputs depend on the text."""
    model = build(preset("transformer", **SIZES, **sizes), seed=3).eval()
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return Run(model, TOKENIZER, task="translate")


@pytest.mark.parametrize("placement, family", [("pre", "pegasus"), ("post", "marian")])
def test_transformers_gives_the_same_greedy_outputs(tmp_path: Path, placement: str, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    run = translator(placement=placement)
    run.save(tmp_path, to="hub")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert theirs.config.model_type == family and not any(info.values())
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    outputs = theirs.generate(**inputs, max_new_tokens=12, num_beams=1, do_sample=False)
    expected = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    assert run.generate(TEXTS, max_new_tokens=12, num_beams=1) == expected and len(set(expected)) > 1
    again = load(tmp_path, "cpu")
    assert again.generate(TEXTS, max_new_tokens=12, num_beams=1) == expected
    for a, b in zip(run.score(TEXTS, TEXTS), again.score(TEXTS, TEXTS), strict=True):
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-4)


def test_outputs_are_equal_up_to_rounding() -> None:
    model = translator(placement="pre").model
    spec = equivalent_spec(model.spec)
    assert spec is not None and family_of(spec).model_type == "pegasus" and spec.max_positions == 1024
    other = equivalent(model, spec)
    assert other is not None
    ids = torch.randint(TOKENIZER.vocab_size, (2, 9))
    expected, logits = model(ids, target=ids), other(ids, target=ids)
    assert (logits - expected).norm() <= 1e-5 * expected.norm()


def test_models_without_an_equivalent() -> None:
    assert equivalent_spec(preset("gpt2")) is None
    assert equivalent_spec(preset("bart-base")) is None
    assert equivalent_spec(preset("opus-mt")) is None
    spec = preset("transformer", **SIZES).replace(
        {"encoder.blocks.*.feedforward": {"kind": "moe", "n_experts": 2, "d_ff": 48}}
    )
    other = equivalent_spec(spec)
    assert other is not None and equivalent(build(spec), other) is None
