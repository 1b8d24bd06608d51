"""Tokenizers in GGUF are read as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_models import LLAMA, TEXT, pieces, trained

from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.io.hub.gguf import container
from qkv.runs.export.gguf import save
from qkv.runs.inference.run import load


def test_a_tokenizer_there_and_back(tmp_path: Path) -> None:
    words = trained(chat_template="{{ messages }}")
    model = build(preset("llama", **{**LLAMA, "vocab_size": 310}))
    path = save(model, tmp_path / "m.gguf", tokenizer=words)
    run = load(path)
    assert run.tokenizer is not None
    for text in [*TEXT, " leading", "naïve 🙂\n\n\tx  y", "</s> is spelled out"]:
        assert run.tokenizer.encode(text) == words.encode(text)
        assert run.tokenizer.decode(words.encode(text)) == text
    assert run.encode("a") == [words.bos_id, *words.encode("a")]
    assert run.ends == [words.eos_id] and run.tokenizer.markers == ("<de>",)
    assert run.tokenizer.config["chat_template"] == "{{ messages }}"


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
