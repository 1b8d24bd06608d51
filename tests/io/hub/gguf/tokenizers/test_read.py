"""Tokenizers in GGUF are read as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_models import LLAMA, TEXT, pieces

from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.io.hub.gguf import container
from qkv.runs.export.gguf import save
from qkv.runs.inference.run import load


@pytest.mark.parametrize("unigram", [False, True])
def test_sentencepiece_tokenizers_there_and_back(unigram: bool, tmp_path: Path) -> None:
    words = pieces(unigram)
    model = build(preset("llama", **{**LLAMA, "vocab_size": 320}))
    path = save(model, tmp_path / "m.gguf", tokenizer=words)
    assert container.read(path).metadata["tokenizer.ggml.model"] == ("t5" if unigram else "llama")
    back = load(path).tokenizer
    assert back is not None and back.unk_id == 0
    for text in [*TEXT, "  the  mats ", "🙂 the cat", "x\n"]:
        assert back.encode(text) == words.encode(text), text
        assert back.decode(back.encode(text)) == words.decode(words.encode(text))
