"""BERT's tokenizers in GGUF files."""

from __future__ import annotations

from pathlib import Path

import pytest
from encoder_folders import encoder

from qkv.runs.export.gguf import save
from qkv.runs.inference.run import load

pytest.importorskip("gguf")


@pytest.mark.filterwarnings("ignore:GGUF holds encoders for embeddings", "ignore:.*MISSING.*pooler")
def test_cased_tokenizers_keep_their_case(tmp_path: Path) -> None:
    run = load(encoder("bert", tmp_path / "hub", lowercase=False), "cpu")
    file = save(run.model, tmp_path / "m.gguf", "f32", tokenizer=run.tokenizer, task=run.task, pooling="mean")
    assert load(file, "cpu").encode("The the é e") == run.encode("The the é e") != run.encode("the the e e")
