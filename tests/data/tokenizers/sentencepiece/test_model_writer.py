"""Writing SentencePiece models."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.tokenizers.sentencepiece import model_file
from qkv.data.tokenizers.sentencepiece.model_writer import dump

FOLDER = Path(__file__).parents[1] / "sentencepiece" / "models"  # by make_tokenizer_golden.py


@pytest.mark.parametrize("name", ["t5", "unigram"])
def test_models_that_are_written_are_read_again(name: str) -> None:
    model = model_file.parse((FOLDER / f"{name}.model").read_bytes())
    assert model_file.parse(dump(model)) == model
