"""XLM-RoBERTa and ALBERT tokenizers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qkv.data.tokenizers.tokenizer import Tokenizer

HERE = Path(__file__).parent


def test_a_family_of_unigram_models_takes_no_other(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "AlbertTokenizer"}')
    shutil.copy(HERE.parent / "sentencepiece" / "models" / "bpe.model", tmp_path / "spiece.model")
    with pytest.raises(ValueError, match="it is a bpe model, but its family has unigram models"):
        Tokenizer.load(tmp_path)
