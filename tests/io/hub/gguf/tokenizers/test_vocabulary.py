"""Which tokens of a GGUF file have roles."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Byte
from qkv.io.hub.gguf.tokenizers.vocabulary import MODEL, ROLES, TOKENS, read_roles, roles_metadata, special_ids


def test_an_id_outside_the_vocabulary_counts_as_not_said() -> None:
    """As llama.cpp reads it: "bad special token, using default id"."""
    said = {MODEL: "llama", ROLES["bos"]: 7, ROLES["eos"]: 99, ROLES["pad"]: -1, ROLES["unk"]: np.float32(0)}
    assert read_roles(said, 10) == {"bos": 7, "eos": 2, "unk": 0}
    assert special_ids({**said, TOKENS: list("abcdefghij")}) == {"bos_token_id": 7, "eos_token_id": 2}


def test_a_usual_role_is_not_taken_from_another() -> None:
    assert read_roles({MODEL: "llama", ROLES["pad"]: 2}, 10) == {"bos": 1, "unk": 0, "pad": 2}


def test_a_tokenizer_without_control_tokens_has_no_end_to_name() -> None:
    bare = train(Byte(pad=None, unk=None, bos=None, eos=None), ["ab"])
    assert not bare.controls
    with pytest.raises(ValueError, match="would take an ordinary token for the end of a text"):
        roles_metadata(bare)
