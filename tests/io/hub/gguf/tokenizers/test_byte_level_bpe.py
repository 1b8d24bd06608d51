"""Byte-level BPE in GGUF files."""

from __future__ import annotations

from pathlib import Path

from gguf_models import LLAMA, TEXT, trained

from qkv.io.directories.build import build
from qkv.io.families import preset
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
