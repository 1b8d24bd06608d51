"""SentencePiece models in GGUF."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_models import LLAMA, TEXT

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.io.hub.gguf.tokenizers import sentencepiece
from qkv.runs.export.gguf import save


def test_sentencepiece_is_written_with_an_unknown_token() -> None:
    tokenizer = train("unigram", ["the cats ate the mats"] * 10)
    with pytest.raises(ValueError, match=r"has none; set tokenizer\.unk"):
        sentencepiece.to_metadata({}, tokenizer.raw, [], [], None, [])


def test_merges_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    model = build(preset("llama", **{**LLAMA, "vocab_size": 400}))
    with pytest.raises(ValueError, match=r"byte-level BPE, tokenizer\.(byte_level=true|kind=bpe), is written"):
        words = train(BPE(vocab_size=380, byte_level=False, byte_fallback=True), TEXT)
        save(model, tmp_path / "m.gguf", tokenizer=words)
