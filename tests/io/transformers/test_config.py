"""A spec as a configuration of transformers: sizes are read from it, and JSON keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from auto_models import bert, config, llama

import qkv

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


def test_sizes_come_from_the_spec_and_the_file_keeps_it(tmp_path: Path) -> None:
    spec = llama(decoder__position=qkv.ALiBi())
    made = config(spec)
    sizes = (made.vocab_size, made.hidden_size, made.num_hidden_layers, made.num_attention_heads)
    assert sizes == (48, 32, 2, 2) and not made.is_encoder_decoder and made.model_type == "qkv"
    made.save_pretrained(tmp_path)
    again: Any = type(made).from_pretrained(tmp_path)
    assert again.spec == spec == made.spec and (again.pad_token_id, again.eos_token_id) == (0, 2)
    assert type(made)(spec=spec.to_dict()).spec == spec
    classes = bert(head=qkv.SequenceClassifier(labels=3), classification_head=None)
    assert config(classes).num_labels == 3 and config(qkv.preset("t5-small")).is_encoder_decoder


def test_what_is_no_spec_of_a_transformer_is_told() -> None:
    from qkv.io.transformers.config import QkvConfig

    with pytest.raises(ValueError, match="the spec of a QkvConfig is a Transformer"):
        QkvConfig(spec="llama")
    with pytest.raises(ValueError, match=r"a QkvConfig needs a spec: QkvConfig\(spec="):
        _ = QkvConfig().spec
    with pytest.raises(ValueError, match="transformers takes qkv's Transformers, not a "):
        QkvConfig(spec=qkv.preset("rnnsearch"))
