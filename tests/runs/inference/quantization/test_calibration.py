"""The data that calibrate a quantization."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_untrained import of, vit, words

import qkv
from qkv.nn.layers.quantized import quantized


def test_a_split_a_file_and_texts_calibrate_and_other_data_are_refused(trained: Path, trained_lm: Path, tmp_path: Path):
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
