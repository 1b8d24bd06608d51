"""Tokenizers that llama.cpp lacks are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_models import LENGTH, TEXT, trained

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.export.gguf import save


def test_tokenizers_that_llama_cpp_lacks_are_refused(tmp_path: Path) -> None:
    model = build(preset("gpt2", **LENGTH))
    with pytest.raises(
        ValueError, match=r"qkv writes no GGUF tokenizers of the kind 'word'.*train with tokenizer.kind=bpe"
    ):
        save(model, tmp_path / "m.gguf", tokenizer=train(Word(vocab_size=90), TEXT))
    model = build(preset("gpt2", **{**LENGTH, "vocab_size": 300}))
    with pytest.raises(ValueError, match=r"doesn't change text before it cuts it.*by Lowercase"):
        save(model, tmp_path / "m.gguf", tokenizer=trained(lowercase=True))
    assert not list(tmp_path.iterdir())
