"""Pre-tokenizers have llama.cpp's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_models import LENGTH, trained

from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.io.hub.gguf import container
from qkv.io.hub.gguf.tokenizers.pre_tokenizers import NAMES, name_of, pipeline_of
from qkv.runs.export.gguf import save


def test_pre_tokenizers_have_llama_cpps_names(tmp_path: Path) -> None:
    model = build(preset("gpt2", **{**LENGTH, "vocab_size": 300}))
    assert (
        container.read(save(model, tmp_path / "m.gguf", tokenizer=trained())).metadata["tokenizer.ggml.pre"] == "gpt-2"
    )
    for name in NAMES:
        pipeline = pipeline_of(name)
        found = name_of(pipeline, NAMES[name].ignore_merges)
        assert name == "default" or (found is not None and NAMES[found] == NAMES[name]), name
    with pytest.raises(ValueError, match=r"this one cuts them otherwise.*split_digits: false"):
        save(model, tmp_path / "n.gguf", tokenizer=trained(split_digits=True))
