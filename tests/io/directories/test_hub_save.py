"""A configuration that is saved names no role whose token lies beyond the vocabulary."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import qkv
from qkv.io.directories.hub_save import DEFAULT_ROLES, config_of
from qkv.io.families import FAMILIES

THEIRS = [model_type for model_type in FAMILIES if model_type in CONFIG_MAPPING]


@pytest.mark.parametrize("model_type", [name for name in THEIRS if "vocab_size" in CONFIG_MAPPING[name]().to_dict()])
def test_no_role_of_a_small_vocabulary_is_a_token_beyond_it(model_type: str) -> None:
    roles = {key: v for key, v in CONFIG_MAPPING[model_type]().to_dict().items() if key.endswith("token_id")}
    large = {
        key: v
        for key, v in roles.items()
        if type(v) is int and v > 5 and not key.startswith(("forced", "decoder_start"))
    }
    assert DEFAULT_ROLES.get(model_type, {}) == large


ROLES = [f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep")]


@pytest.mark.parametrize("preset", ["modernbert-base", "opus-mt", "falcon-7b", "gpt2"])
def test_a_small_vocabulary_is_saved_without_their_default_roles(preset: str) -> None:
    sizes = {"vocab_size": 9, "d_model": 8, "n_heads": 2, "n_layers": 1}
    config = config_of(qkv.preset(preset, **sizes), torch.float32)  # type: ignore[arg-type]
    theirs = CONFIG_MAPPING[config["model_type"]](**config)
    AutoModel.from_config(theirs)
    ids = [value for key, value in theirs.to_dict().items() if key in ROLES and value is not None]
    assert all(value < 9 for value in ids), ids
